"""Titles of what a timeline shows: runs, rebalances, and the moments of faults, refused writes and aborts. Pure.

A title has only what the events show, without a full stop. The renderer masks secrets in it.
"""

from __future__ import annotations

from connectx.history.folds.rebalances import Rebalance
from connectx.history.folds.runs import Run, Segment
from connectx.history.wording import duration, listing
from connectx.model.events import Event
from connectx.model.payloads import CommitRefused, FaultInjected, TransactionAborted
from connectx.views import gist


def run_title(run: Run, segment: Segment) -> str:
    """What ran where, in which state, generation and epoch."""
    facts = [f"{run.name} on {run.worker}: {segment.state.value}"]
    if run.generation is not None:
        facts.append(f"generation {run.generation}")
    if run.producer_epoch is not None:
        facts.append(f"epoch {run.producer_epoch}")
    return ", ".join(facts)


def rebalance_title(rebalance: Rebalance) -> str:
    """Generation, duration, members, leader and reason; of one under way only the reason."""
    if rebalance.generation is None or rebalance.end_ms is None:
        return f"rebalance under way: {rebalance.why}"
    took = duration(rebalance.end_ms - rebalance.start_ms)
    title = f"generation {rebalance.generation}, {took}, {listing(rebalance.members)}"
    title += f"; leader {rebalance.leader}" if rebalance.leader else ""
    title += f"; {rebalance.why}" if rebalance.why else ""
    return title + (
        f"; lost work waits {duration(rebalance.delay_ms)}" if rebalance.delay_ms and rebalance.lost else ""
    )


def mark_title(event: Event, epoch: int | None) -> str:
    """A fault, a refused write or an aborted transaction."""
    about = f"{event.connector}-{event.task} on {event.worker}"
    match event.payload:
        case FaultInjected() as fault:
            return fault.title(event.worker)
        case TransactionAborted():
            return f"{about}: a transaction was aborted" + (f" ({event.cause})" if event.cause else "")
        case _:
            return f"{about}: {rejection(event, epoch)}"


def rejection(event: Event, epoch: int | None, *, owner: str = "its", of: str = "") -> str:
    """A write or commit that was refused: by the broker (producer epoch), or by a sink's group or target.

    Args:
        event: PRODUCER_FENCED or COMMIT_REFUSED.
        epoch: the producer's at that moment, if it is known.
        owner: whose write it was, in the genitive.
        of: for what, as " for orders-0".
    """
    if isinstance(event.payload, CommitRefused):
        reason = gist(event.cause)
        return f"{owner} commit{of} was refused" + (f" ({reason})" if reason else "")
    return f"{owner} write{of}{'' if epoch is None else f' at epoch {epoch}'} was rejected"
