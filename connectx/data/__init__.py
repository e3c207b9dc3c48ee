"""Converters: whole batches between Kafka's bytes and Arrow, in the worker or by Spark."""
