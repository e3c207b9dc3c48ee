"""Histories of version 1 (connectx 0.1): data without types, and causes in words only. Pure.

Reads those of its sentences that views of the history decide by; others stay sentences (`RecordedText`). Nothing here
changes any more: version 1 is not written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from connectx.model.causes import (
    Cause,
    CoordinatorUnreachable,
    GroupRebalances,
    GroupRequestRefused,
    OutsideGroup,
    ProcessEnded,
    RebalanceSuperseded,
    RecordedText,
    RefusedByKafka,
    SessionExpired,
    TakenOver,
    TakenSilently,
    WorkerStarts,
)
from connectx.model.events import EventKind
from connectx.model.ids import TaskId
from connectx.model.payloads import FencedBy, Payload, payload_of

_Texts = re.Match[str]
_SENTENCES: Final[tuple[tuple[str, Callable[[_Texts], Cause]], ...]] = (
    (r"the worker starts", lambda _: WorkerStarts()),
    (r"the group is rebalancing", lambda _: GroupRebalances()),
    (r"another rebalance began before this one was complete", lambda _: RebalanceSuperseded()),
    (r"(Heartbeat|JoinGroup|SyncGroup) was refused: (.*)", lambda text: GroupRequestRefused(text[1], text[2])),
    (r"no heartbeat was answered for (\d+) ms", lambda text: SessionExpired(int(text[1]))),
    (r"the group coordinator cannot be reached", lambda _: CoordinatorUnreachable()),
    (r"its process has ended for certain", lambda _: ProcessEnded()),
    (r"it answers and is no member of the group: .*", lambda _: OutsideGroup(answers=True)),
    (r"it is no member of the group and does not answer: .*", lambda _: OutsideGroup(answers=False)),
    (r"(\S+) has it now; (\S+) did not say that it gave it up", lambda text: TakenSilently(text[1], text[2])),
    (r"refused by Kafka", lambda _: RefusedByKafka()),
)


def read(kind: EventKind, data: Mapping[str, Any], cause: str, task: TaskId | None) -> tuple[Payload, Cause | None]:
    """The payload and the cause of an event about `task`.

    Raises:
        ValueError, TypeError: a field has a wrong value; the message names it.
    """
    given = {key: value for key, value in data.items() if value is not None or kind is EventKind.OFFSETS_ALTERED}
    payload = payload_of(kind, given)
    if isinstance(payload, FencedBy) and task is not None and payload.by is not None and payload.state is not None:
        generation = -1 if payload.by_generation is None else payload.by_generation
        takeover = TakenOver(payload.by, task, generation, payload.newer_epoch, payload.state, payload.since_ms)
        return payload, takeover
    return payload, cause_of(cause or (str(data.get("reason") or "") if payload.has_reason else ""))


def cause_of(text: str) -> Cause | None:
    """The cause that a sentence of version 1 names."""
    for pattern, make in _SENTENCES:
        if found := re.fullmatch(pattern, text, re.DOTALL):
            return make(found)
    return RecordedText(text) if text else None
