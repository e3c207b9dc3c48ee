"""What a failed run tells: how to see it again, which invariant broke, and what happened, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from connectx.history.sentences.stories import stories
from connectx.history.wording import duration, plural
from connectx.model.events import Event, EventKind
from connectx.model.payloads import FaultInjected
from tests.simulation.chooser import written
from tests.simulation.invariants import SENTENCES
from tests.simulation.runs import Run
from tests.simulation.world import START_MS, World

FAULTS = {
    "pause": "stands still, with its tasks",
    "stall": "stalls: no heartbeats, but its tasks go on",
    "cut_off": "is cut off from Kafka",
    "mute": "is cut off one way: what it sends does not arrive",
    "deafen": "is cut off one way: it hears no answer",
    "reset": "loses its connections",
    "lag": "reads nothing of the config topic",
    "kill": "is killed",
    "stop": "is asked to stop",
    "fail_work": "sees some of its work fail, or asked for other tasks",
    "outage": "Kafka is away",
    "move_coordinator": "a group coordinator moves",
    "move_transactions": "the coordinator of transactions moves",
    "compact": "the internal topics are compacted",
    "add_worker": "a worker is added",
    "heal": "all faults have ended; what failed is restarted",
}
AS_IN_HISTORIES = {"cut_off": "partition", "mute": "partition", "deafen": "partition"}
TOLD = {
    EventKind.CONNECTOR_CONFIGURED: "reads a configuration of {connector}",
    EventKind.CONNECTOR_DELETED: "reads that {connector} was deleted",
    EventKind.TASKS_CONFIGURED: "reads {tasks} task configs of {connector}",
    EventKind.TASKS_INCONSISTENT: "reads an incomplete set of task configs of {connector}",
    EventKind.TASK_COUNT_RECORDED: "reads the task count record {task_count} of {connector}",
    EventKind.LEADERSHIP_CLAIMED: "claims the config topic",
    EventKind.LEADERSHIP_FENCED: "is fenced as leader",
    EventKind.FENCING_STARTED: "fences the producers of {connector}",
    EventKind.MEMBER_LOST: "has lost its place in the group ({error})",
    EventKind.REBALANCE_COMPLETED: "runs {tasks} and {connectors} in generation {generation}",
    EventKind.TASK_REFUSED: "does not start {connector}-{task}: {reason}",
    EventKind.PRODUCER_FENCED: "finds {connector}-{task} fenced",
    EventKind.COMMIT_REFUSED: "finds a commit of {connector}-{task} refused: {reason}",
}
LAST = 40  # sentences at the end, before the breach


def events(world: World) -> list[Event]:
    """The simulated transitions as a history, as a live cluster keeps it."""
    found = []
    for seq, (time_ms, worker, t) in enumerate(world.history, 1):
        payload = t.payload
        if isinstance(payload, FaultInjected):
            payload = replace(payload, fault=AS_IN_HISTORIES.get(payload.fault, payload.fault))
        found.append(Event(seq, time_ms, worker, payload, t.connector, t.task, t.generation, t.producer_epoch, t.why))
    return found


def report(failed: Run, seed: int | None, original: int | None = None) -> str:
    """All that a reader needs; `original` is the length of the trail before it was made shorter."""
    number, world = failed.number, failed.chaos.world
    name = "a trail" if seed is None else f"seed {seed}"
    lines = [f"{name} breaks invariant {number}: {SENTENCES[number]}" if number else f"{name} ends in an error"]
    lines.append(f"  what was seen: {getattr(failed.error, 'detail', repr(failed.error))}")
    was = f", made shorter from {original}" if original is not None and original > len(failed.trail) else ""
    lines.append(f"  to see it again ({plural(len(failed.trail), 'choice')}{was}):")
    lines.append(f"    python -m tests.simulation --replay '{written(failed.trail)}'")
    lines.append(f"  {cluster(failed)}")
    lines.append("  what happened:")
    sentences = list(story(world))
    if len(sentences) > LAST:
        lines.append(f"    ({plural(len(sentences) - LAST, 'earlier sentence')} left out)")
    lines += [f"    {sentence}" for sentence in sentences[-LAST:]]
    return "\n".join(lines)


def cluster(failed: Run) -> str:
    """The settings of this world that differ from a calm one."""
    chaos, world = failed.chaos, failed.chaos.world
    odds = (
        "slow",
        "lossy",
        "stuck",
        "slow_stops",
        "slow_data",
        "wild_timers",
        "repeats",
        "torn_writes",
        "failing_puts",
    )
    strengths = [f"{name}={getattr(world, name)}" for name in odds if getattr(world, name)]
    parts = [
        plural(len(world.workers), "worker"),
        f"exactly_once={world.config.exactly_once_source_support}",
        f"transaction protocol {world.broker.transactions.transaction_version}",
        f"{world.config.connect_protocol[0].wire_name} protocol",
        f"rebalance delay {world.config.scheduled_rebalance_max_delay_ms} ms",
        f"faults: {', '.join(chaos.kinds) or 'none'}",
        *strengths,
    ]
    return "; ".join(parts)


def story(world: World) -> Iterator[str]:
    """Sentences in the order of time: what each worker saw, and what followed from the faults."""
    happened = events(world)
    sentences = [(event.time_ms, event.seq, text) for event in happened if (text := sentence(event)) is not None]
    sentences += [(report.time_ms, report.seq, f"so: {report.sentence}") for report in stories(happened)]
    for time_ms, _, text in sorted(sentences):
        yield f"{duration(time_ms - START_MS)}: {text}"


def sentence(event: Event) -> str | None:
    """One event in words, None for those that say little."""
    if event.kind is EventKind.FAULT_INJECTED:
        text = FAULTS.get(str(event.data["fault"]), "is cut off from Kafka, at least one way")
        return text if event.worker is None else f"{event.worker} {text}"
    if event.kind is EventKind.TASK_STEP and event.data["step"] in ("init_producer", "begin", "cancel"):
        return f"{event.worker} {event.connector}-{event.task} #{event.data['instance']}: {event.data['step']}"
    if event.kind is EventKind.TASK_STATE and event.data["state"] == "FAILED":
        return f"{event.worker} {event.connector}-{event.task} fails: {event.data['trace']}"
    if event.kind not in TOLD:
        return None
    values = {"generation": event.generation, "error": event.cause, **event.data}
    return f"{event.worker} {TOLD[event.kind].format(**values | {'connector': event.connector, 'task': event.task})}"
