"""The event log and its views."""
