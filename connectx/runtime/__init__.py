"""Runs workers: the threads, processes, timers and faults around the pure core."""
