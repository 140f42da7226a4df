"""Programs with a local Ray of their own, run by tests as `python -m tests.harness.drivers.X`."""
