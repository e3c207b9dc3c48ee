"""Scheduled faults and seeded chaos, on workers and on the broker."""
