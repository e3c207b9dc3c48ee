"""REST server and client of a worker."""
