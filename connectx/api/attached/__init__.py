"""Clusters that run elsewhere, observed through REST, the worker group and their topics."""
