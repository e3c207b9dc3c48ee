"""Check of a run: compares sources, topics and targets, and returns a verdict."""
