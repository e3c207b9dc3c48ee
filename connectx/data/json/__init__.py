"""Kafka Connect's JsonConverter: JSON to Arrow and back, in the worker or by Spark."""
