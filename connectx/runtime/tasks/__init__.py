"""Threads of connectors and tasks: runners, hosts and the services they use."""
