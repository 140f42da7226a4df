"""Context layers: contributors to what a model sees, each with a state that travels."""
