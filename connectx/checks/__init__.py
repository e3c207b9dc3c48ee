"""Gathers the evidence that a check judges: topics, targets, and what sources hold, read from outside the tasks."""
