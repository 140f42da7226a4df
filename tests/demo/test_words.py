from __future__ import annotations

from noetic_ray.demo.words import count, sentences, terms, weigh


def test_terms_are_counted_as_whole_words_in_any_case() -> None:
    text = "Salt, salt and SALT; salty. Sea salt!"
    assert count(text, ["salt", "sea salt", "pepper"]) == {"salt": 4, "sea salt": 1, "pepper": 0}


def test_a_term_with_signs_is_taken_literally() -> None:
    assert count("c++ and c", ["c++", ".*", " "]) == {"c++": 1, ".*": 0}


def test_terms_are_the_most_frequent_uncommon_words() -> None:
    assert terms(["the the the sea and the bell", "bell of the sea", "sea"], 2) == ["sea", "bell"]


def test_headings_scraps_and_code_are_no_sentences() -> None:
    text = (
        "A HEADING OF FIVE WORDS\n\nThe first sentence goes\nover lines. It is short. The second "
        'one is here, too!\n\ndef f(x: int) -> int:\n    """What it gives is very clear."""'
    )
    assert sentences(text) == [
        "The first sentence goes over lines.",
        "The second one is here, too!",
        "What it gives is very clear.",
    ]


def test_a_sentence_full_of_terms_outweighs_one_without() -> None:
    counts = {"sea": 5, "bell": 3}
    heavy, light = "The bell of the sea rang.", "Nobody was there to hear it."
    assert weigh(heavy, counts) > weigh(light, counts) == 0
