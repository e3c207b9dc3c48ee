"""History of a cluster: the event log and its views."""
