"""Clients of Kafka: admin, internal topics, producer, fetcher, consumer, embedded broker."""
