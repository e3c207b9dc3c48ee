"""Kafka Connect's JsonConverter: JSON to Arrow and back."""
