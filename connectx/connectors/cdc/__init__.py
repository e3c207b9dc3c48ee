"""Change data capture from PostgreSQL: a snapshot, then the stream of changes, as Debezium's events."""
