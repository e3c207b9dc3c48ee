"""Probes of the machine, the notebook, Spark and a Kafka cluster, and their report."""
