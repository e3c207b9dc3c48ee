"""Decisions of a fetching consumer: positions, leaders, retries, buffer, truncated logs. Pure."""
