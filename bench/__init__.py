"""Measurements of connectx on this machine; `python -m bench` runs them and prints JSON lines."""
