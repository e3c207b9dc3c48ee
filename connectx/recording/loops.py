"""How the loops of tasks are recorded, and what of them is secret.

Source partitions and offsets may have values of rows, and errors may quote whole records: their texts are hidden. Names
of fields in offsets, numbers, topics, and offsets in Kafka are shown.
"""

from __future__ import annotations

from typing import Final

from connectx.core.sink import messages as sink
from connectx.core.sink.loop import SinkTaskCore
from connectx.core.source import messages as source
from connectx.core.source.loop import SourceTaskCore
from connectx.recording.codec import Codec, Secrets
from connectx.recording.kind import kind_of_values

_ERRORS: Final = frozenset({"error", "failure", "skip_reason", "obstacle", "bulk_obstacle", "reason"})
_OFFSETS: Final = frozenset({"partition", "offset", "position", "start", "end", "committed"})

SOURCE: Final = kind_of_values(
    "source task",
    SourceTaskCore,
    Codec(
        (source.SourceStimulus, source.SourceEffect),
        parts=(SourceTaskCore,),
        secrets=Secrets(texts=_ERRORS | _OFFSETS, json_keys=frozenset({"pending", "passed", "committed"})),
    ),
)
"""The core of a source task."""

SINK: Final = kind_of_values(
    "sink task",
    SinkTaskCore,
    Codec((sink.SinkStimulus, sink.SinkEffect), parts=(SinkTaskCore,), secrets=Secrets(texts=_ERRORS)),
)
"""The core of a sink task."""
