"""Runs the hooks of context layers: when, how long, and what their answers mean."""
