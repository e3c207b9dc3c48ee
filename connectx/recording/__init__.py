"""Recordings of cores, their stimuli and effects, for replay. See docs/recordings.md."""
