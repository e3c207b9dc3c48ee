"""The producer's decisions: sequences, retries, epochs and transactions of both protocols. Pure."""
