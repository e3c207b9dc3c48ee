"""Causes of rebalances, as sentences: joined and lost members, and the reasons that members gave. Pure.

A member that only follows the group has no separate reason; its cause is shown only without a better one. Mirrors
no Kafka class: a Kafka Connect worker logs only its own reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectx.history.folds.worker_states import Standing, WorkerState
from connectx.history.wording import listing
from connectx.model import causes

Reason = tuple[str, causes.Cause | None]
"""Worker, and the cause of its join."""

_FOLLOWING = causes.GroupRebalances | causes.RebalanceSuperseded
_OWN_LOSS = causes.GroupRequestRefused | causes.SessionExpired | causes.CoordinatorUnreachable


def why(
    members: Sequence[str],
    before: Sequence[str],
    ever: Sequence[str],
    standings: Mapping[str, Standing],
    reasons: Sequence[Reason],
    removed: Sequence[str] = (),
) -> str:
    """The cause of a round as sentence parts.

    Args:
        members: who is in the group now.
        before: who was in it in the round before.
        ever: who was in it in any round before.
        standings: how each worker stood when the round ended.
        reasons: causes of the joins, first to last.
        removed: workers that were removed from the group after their process had ended.
    """
    come = [name for name in members if name not in before]
    parts = _joined([name for name in come if name not in ever], "joined")
    parts += _joined([name for name in come if name in ever], "came back")
    gone = [(name, _way(standings.get(name), name in removed)) for name in before if name not in members]
    for way in dict.fromkeys(way for _, way in gone):
        parts += _joined([name for name, its in gone if its == way], way)
    parts += [text for text in reason_texts(reasons, come) if text not in parts]
    return "; ".join(parts) or next((str(cause) for _, cause in reasons if cause is not None), "")


def reason_texts(reasons: Sequence[Reason], come: Sequence[str] = ()) -> list[str]:
    """Causes that members do not merely follow, each once; without those of workers that came, which explain that."""
    own = [(worker, cause) for worker, cause in reasons if cause is not None and not isinstance(cause, _FOLLOWING)]
    shown = [(worker, cause) for worker, cause in own if worker not in come or not _explains_coming(cause)]
    return list(dict.fromkeys(_reason_text(worker, cause) for worker, cause in shown))


def _explains_coming(cause: causes.Cause) -> bool:
    return isinstance(cause, causes.WorkerStarts | _OWN_LOSS)


def _reason_text(worker: str, cause: causes.Cause) -> str:
    if isinstance(cause, causes.WorkerStarts):
        return f"{worker} starts"
    text = str(cause)
    return f"{worker}: {text}" if isinstance(cause, _OWN_LOSS) else text


def _joined(names: Sequence[str], what: str) -> list[str]:
    return [f"{listing(names)} {what}"] if names else []


def _way(standing: Standing | None, removed: bool) -> str:
    if standing is None:
        return "left or was lost"
    state = standing.state
    if state in (WorkerState.STOPPED, WorkerState.STOPPING):
        return "left"
    if removed:
        return f"was removed ({state}; its process has ended)"
    return "was lost" if state in (WorkerState.UP, WorkerState.STARTING) else f"was lost ({state})"
