"""Converters, transforms and predicates as column expressions."""
