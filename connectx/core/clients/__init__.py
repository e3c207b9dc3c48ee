"""What the cores of Kafka clients share: requests and their answers, retries, and classes of errors. Pure."""
