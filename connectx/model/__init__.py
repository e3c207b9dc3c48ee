"""Nouns of Kafka Connect: ids, states, records of the internal topics, group metadata, events. No behaviour, no I/O."""
