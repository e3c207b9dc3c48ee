"""Bytes and JSON of Kafka Connect, pure."""
