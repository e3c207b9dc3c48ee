"""Clusters that run elsewhere, seen from outside: REST, the worker group, the config and status topics."""
