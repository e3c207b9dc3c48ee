"""Finds problems: in the data a cluster moved, in its set-up, and on this machine."""
