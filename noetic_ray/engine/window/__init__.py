"""Puts together what a model step sends: layers recalled, pinned, fitted into the window."""
