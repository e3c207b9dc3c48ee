"""The source task's loop, its messages and its progress. Pure."""
