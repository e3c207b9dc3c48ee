"""Shared parts of converters with a schema registry: client, keys, subjects, framing."""
