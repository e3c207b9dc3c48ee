"""Faults beyond a single verb: planned ones, scheduled ones, and those of the broker."""
