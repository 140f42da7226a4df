from __future__ import annotations

from noetic_ray.items import item_json, user_message
from noetic_ray.journal.events import wrap_item
from noetic_ray.journal.runlog import RunLog


def _filled(count: int, base: int = 0) -> RunLog:
    log = RunLog(base)
    for n in range(count):
        log.append("t", "c", float(n), b"%d" % n)
    return log


def test_numbers_start_at_one_and_have_no_gaps() -> None:
    log = _filled(5)
    assert log.last_seq == 5
    assert [entry[0] for entry in log.read(0, 100)] == [1, 2, 3, 4, 5]
    assert log.read(3, 100) == [(4, "t", "c", 3.0, b"3"), (5, "t", "c", 4.0, b"4")]


def test_a_page_has_a_limit_and_nothing_follows_the_last() -> None:
    log = _filled(5)
    assert [entry[0] for entry in log.read(1, 2)] == [2, 3]
    assert log.read(5, 10) == []
    assert log.read(9, 10) == []


def test_a_log_may_go_on_where_a_store_stops() -> None:
    log = _filled(3, base=10)
    assert [entry[0] for entry in log.read(10, 100)] == [11, 12, 13]
    assert log.last_seq == 13


def test_the_end_event_is_the_last_one_shown_until_the_run_starts_again() -> None:
    log = _filled(2)
    log.append("run.ended", "c", 0.0, b"{}")
    log.append("late", "c", 0.0, b"{}")
    assert log.end_seq == 3
    assert [entry[0] for entry in log.read(0, 100)] == [1, 2, 3]
    log.append("run.started", "c", 0.0, b"{}")
    assert log.end_seq == 0
    assert [entry[0] for entry in log.read(3, 100)] == [4, 5]


def test_items_are_found_per_context() -> None:
    log = RunLog()
    said = {"a": [], "b": []}  # type: dict[str, list[bytes]]
    for n in range(10):
        raw = item_json(user_message(str(n)))
        context = "ab"[n % 2]
        said[context].append(raw)
        log.append("item.appended", context, 0.0, wrap_item(raw))
        log.append("step.started", context, 0.0, b"{}")
    assert log.items("a", 0, 100) == said["a"]
    assert log.items("b", 3, 1) == [said["b"][3]]
    assert log.item_count("a") == 5
    assert log.item_count("nobody") == 0
    assert log.items("nobody", 0, 10) == []


def test_the_summary_follows_new_events() -> None:
    log = _filled(2)
    assert log.info("r").status == "pending"
    log.append("run.started", "r", 9.0, b'{"step":"main"}')
    info = log.info("r")
    assert (info.status, info.step, info.started_at) == ("running", "main", 9.0)
    assert log.info("r") is info
    log.append("run.ended", "r", 10.0, b'{"status":"failed"}')
    assert log.info("r").status == "failed"


def test_equal_context_ids_are_kept_once() -> None:
    log = RunLog()
    for _ in range(2):
        log.append("t", "".join(["con", "text"]), 0.0, b"")
    one, other = log.read(0, 10)
    assert one[2] is other[2]
