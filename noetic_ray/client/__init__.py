"""What a client of a run sees: its messages, its trace, its spaces."""
