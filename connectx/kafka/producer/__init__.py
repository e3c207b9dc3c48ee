"""connectx's own producer: batching by Arrow, requests over kafka-python's connections, typed errors."""
