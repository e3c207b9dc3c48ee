"""Reports of the JVM that runs Java connectors. Most are stimuli of the core, under the same names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from connectx.core import messages
from connectx.model.decoding import Decoder, WrongShape
from connectx.model.json_values import from_json
from connectx.model.payloads import SourceRange
from connectx.values import Value


class Ready(Value):
    """The JVM takes orders."""


class HostFailed(Value):
    """The JVM ends because of an error outside of connectors and tasks."""

    trace: str


class Answer(Value):
    """Answer to a question: its value, or an error with its status in HTTP."""

    id: int
    value: Any = None
    error: str | None = None
    status: int = 500


class Committed(messages.OfTask):
    """Records and offsets were committed.

    `offsets` are a source's, `ends` the offsets of a sink by partition. `transaction`: by an exactly-once source.
    """

    records: int
    transaction: bool
    offsets: tuple[SourceRange, ...] | None = None
    ends: Mapping[str, int] | None = None


class PartitionsAssigned(messages.OfTask):
    """A sink task reads these partitions, too."""

    partitions: tuple[str, ...]


class PartitionsRevoked(messages.OfTask):
    """A sink task no longer reads these partitions."""

    partitions: tuple[str, ...]


ConnectorReport = (
    messages.ConnectorStarted
    | messages.ConnectorStateReached
    | messages.ConnectorFailed
    | messages.ConnectorStopped
    | messages.TaskConfigsGenerated
    | messages.TaskReconfigurationRequested
)
TaskReport = (
    messages.TaskPrepared
    | messages.TaskProducerReady
    | messages.TaskStateReached
    | messages.TaskFailed
    | messages.TaskStopped
)
HistoryReport = Committed | PartitionsAssigned | PartitionsRevoked
"""What goes into the history, also of a task that the core has forgotten."""
Report = ConnectorReport | TaskReport | HistoryReport | messages.TopicUsed
"""What a link hands on."""
Line = Report | Ready | HostFailed | Answer


_KINDS: Final[Mapping[str, type[Line]]] = {
    kind.__name__: kind
    for kind in (
        messages.ConnectorStarted,
        messages.ConnectorStateReached,
        messages.ConnectorFailed,
        messages.ConnectorStopped,
        messages.TaskConfigsGenerated,
        messages.TaskReconfigurationRequested,
        messages.TaskPrepared,
        messages.TaskProducerReady,
        messages.TaskStateReached,
        messages.TaskFailed,
        messages.TaskStopped,
        messages.TopicUsed,
        Committed,
        PartitionsAssigned,
        PartitionsRevoked,
        Ready,
        HostFailed,
        Answer,
    )
}


@Decoder
def report_of(line: bytes) -> Line:
    """The report that a line has. A plugin can write to the socket only by force, but its texts are in reports."""
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise WrongShape("it is no object")
    kind = _KINDS.get(fields.get("report", ""))
    if kind is None:
        raise WrongShape("its kind is not known")
    report: Line = from_json(kind, fields)
    return report
