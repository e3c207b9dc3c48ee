"""Readers and writers of the config, status and offsets topics."""
