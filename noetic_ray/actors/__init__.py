"""The Ray actors: contexts, their supervisor, channels and the journal."""
