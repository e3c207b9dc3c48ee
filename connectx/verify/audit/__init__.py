"""Audit of running Kafka Connect clusters: an inventory, rules over it, and findings."""
