"""Decisions of a worker, pure: a stimulus goes in, transitions and effects come out."""
