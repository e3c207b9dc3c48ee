"""Rules that hold for a source task's loop after every step. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, Protocol

from connectx.core.loops.messages import EffectFailed
from connectx.core.loops.retries import Retry
from connectx.core.rules import Rules
from connectx.core.source import messages as msg
from connectx.core.source.bulk import BulkLane
from connectx.core.source.progress import SourceProgress, SourceTaskSettings


class SourceRule(StrEnum):
    """A rule of the loop; the value is its sentence."""

    ONE_EFFECT = "at most one effect is outstanding"
    OPEN_IN_PHASE = "a transaction is open only in an exactly-once loop that works or ends"
    PARTS_LEFT = "a current slice has a part that is not sent yet"
    SLICE_OR_JOB = "there is a current slice or a job, never both"
    ABORT_IS_ASKED = "an abort that the task or a job caused is outstanding, or the transaction after it"
    RETRY_WORKS = "an operation is tried again only while the loop works, and no slice is current then"
    OFFSETS_NEED_START = "offsets are known only after the plugin has started"
    COMMIT_HAS_OFFSETS = "a commit carries the offsets that are pending or passed, and no others"
    FAILING_ENDS = "a loop with a failure ends"


class Parts(Protocol):
    """What the rules read of the loop."""

    @property
    def phase(self) -> StrEnum:
        """Where it is."""

    settings: SourceTaskSettings
    outstanding: dict[int, msg.SourceAction]
    progress: SourceProgress
    current_slice: msg.Polled | None
    part: int
    aborting: bool
    dropping: bool
    retry: Retry | None
    transaction_open: bool
    bulk: BulkLane
    started: bool
    cancelled: bool
    failure: EffectFailed | None


def _one_effect(loop: Parts) -> Iterator[str]:
    if len(loop.outstanding) > 1:
        yield f"{list(loop.outstanding.values())} are"


def _open_in_phase(loop: Parts) -> Iterator[str]:
    is_cut_off = loop.phase == "ended" and loop.cancelled
    may_be_open = loop.settings.exactly_once and (loop.phase in ("working", "ending") or is_cut_off)
    if loop.transaction_open and not may_be_open:
        yield f"it is open, and the loop is {loop.phase}"


def _parts_left(loop: Parts) -> Iterator[str]:
    if loop.current_slice is not None and loop.part >= max(1, len(loop.current_slice.parts)):
        yield f"part {loop.part} of slice {loop.current_slice.slice_number} is the next"


def _slice_or_job(loop: Parts) -> Iterator[str]:
    if loop.current_slice is not None and loop.bulk.job is not None:
        yield f"slice {loop.current_slice.slice_number} and job {loop.bulk.job.slice_number}"


def _abort_is_asked(loop: Parts) -> Iterator[str]:
    awaited = (msg.AbortTransaction, msg.BeginTransaction) if loop.aborting else (msg.AbortTransaction,)
    is_asked = any(isinstance(effect, awaited) for effect in loop.outstanding.values())
    if (loop.aborting or loop.dropping) and not is_asked and loop.phase != "ended":
        yield f"{list(loop.outstanding.values())} is outstanding"


def _retry_works(loop: Parts) -> Iterator[str]:
    if loop.retry is not None and loop.phase not in ("working", "ending", "ended"):
        yield f"attempt {loop.retry.attempt} has failed, and the loop is {loop.phase}"
    if loop.retry is not None and loop.current_slice is not None:
        yield f"slice {loop.current_slice.slice_number} is current"


def _offsets_need_start(loop: Parts) -> Iterator[str]:
    if loop.progress.offsets() and not loop.started:
        yield f"{loop.progress.offsets()}"


def _commit_has_offsets(loop: Parts) -> Iterator[str]:
    for effect in loop.outstanding.values():
        match effect:
            case msg.WriteOffsets(offsets) | msg.FlushAndCommitOffsets(offsets) if offsets != loop.progress.offsets():
                yield f"{offsets} in place of {loop.progress.offsets()}"


def _failing_ends(loop: Parts) -> Iterator[str]:
    if loop.failure is not None and loop.phase not in ("ending", "ended"):
        yield f"{loop.phase} after {loop.failure.error}"


SOURCE_RULES: Final[Rules[SourceRule, Any]] = {
    SourceRule.ONE_EFFECT: _one_effect,
    SourceRule.OPEN_IN_PHASE: _open_in_phase,
    SourceRule.PARTS_LEFT: _parts_left,
    SourceRule.SLICE_OR_JOB: _slice_or_job,
    SourceRule.ABORT_IS_ASKED: _abort_is_asked,
    SourceRule.RETRY_WORKS: _retry_works,
    SourceRule.OFFSETS_NEED_START: _offsets_need_start,
    SourceRule.COMMIT_HAS_OFFSETS: _commit_has_offsets,
    SourceRule.FAILING_ENDS: _failing_ends,
}
