"""The sink task's loop, its messages and its progress. Pure."""
