"""Carries out the effects of source tasks: polling, topics, transactions."""
