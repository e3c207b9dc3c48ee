"""Positions of a source connector: source partitions and their offsets (Kafka Connect: SourceRecord)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SourcePartition = Mapping[str, Any]
"""Names one part of a source, such as a file or a table. Values are JSON."""

SourceOffset = Mapping[str, Any]
"""How far a source partition was read. Values are JSON."""
