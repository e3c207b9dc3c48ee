"""Why the group divided its work anew, in words: who came, who went and how, what members gave as reasons. Pure.

A member that only follows gives no reason of its own ("the group is rebalancing"); such words are told when there is
nothing better. Mirrors no Kafka class: a Kafka Connect worker logs only its own reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectx.history.folds.worker_states import Standing, WorkerState
from connectx.history.wording import listing

Reason = tuple[str, str]
"""Worker, and what it gave as its reason to join."""

_FOLLOWING = ("the group is rebalancing", "another rebalance began before this one was complete")
_STARTING = "the worker starts"
_OWN_LOSS = (
    *("Heartbeat was refused", "JoinGroup was refused", "SyncGroup was refused", "no heartbeat was answered"),
    "the group coordinator cannot be reached",
)


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
        reasons: what members gave as reasons, first to last.
        removed: workers for which somebody else said goodbye to the group.
    """
    come = [name for name in members if name not in before]
    parts = _joined([name for name in come if name not in ever], "joined")
    parts += _joined([name for name in come if name in ever], "came back")
    gone = [(name, _way(standings.get(name), name in removed)) for name in before if name not in members]
    for way in dict.fromkeys(way for _, way in gone):
        parts += _joined([name for name, its in gone if its == way], way)
    parts += [text for text in reason_texts(reasons, come) if text not in parts]
    return "; ".join(parts) or next((text for _, text in reasons if text), "")


def reason_texts(reasons: Sequence[Reason], come: Sequence[str] = ()) -> list[str]:
    """Reasons that say something, each once; those of workers that came are left out where they say just that."""
    said = [(worker, text) for worker, text in reasons if text and text not in _FOLLOWING]
    own = [worker not in come or not text.startswith((_STARTING, *_OWN_LOSS)) for worker, text in said]
    return list(dict.fromkeys(_said(*reason) for reason, is_new in zip(said, own, strict=True) if is_new))


def _said(worker: str, text: str) -> str:
    if text == _STARTING:
        return f"{worker} starts"
    return f"{worker}: {text}" if text.startswith(_OWN_LOSS) else text


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
