"""Flows under chaos for minutes or hours, measured from outside in the end. `make soak MINUTES=10`; not part of CI."""
