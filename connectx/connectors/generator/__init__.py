"""Generator: rows that a schema describes, made up."""
