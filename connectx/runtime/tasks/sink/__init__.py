"""Carries out the effects of sink tasks: consumer, records, dead letters."""
