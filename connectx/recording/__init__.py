"""Recordings of a worker's core, its stimuli and effects, for replay. See docs/recordings.md."""
