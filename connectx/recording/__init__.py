"""Recordings of a worker's core: what it was given and ordered, in a file that replays it. See docs/recordings.md."""
