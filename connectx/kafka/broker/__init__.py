"""The embedded Kafka broker, and the TCP gate in front of it."""
