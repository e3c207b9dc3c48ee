"""What is wrong, or will go wrong, with Kafka Connect clusters that run: facts, rules over them, findings."""
