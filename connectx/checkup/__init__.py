"""What works on this machine, in this session and with this Kafka: probes, judgements of them, and their report."""
