"""Bytes and JSON of Kafka Connect's topics, group protocol and record batches. Pure."""
