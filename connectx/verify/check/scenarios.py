"""Scenarios that a run must have reached for its check to be meaningful. Pure.

A scenario is a name or a predicate over the events. A run in which a kill hit an idle worker proves nothing about kills
(Antithesis: "sometimes" assertions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from connectx.errors.plugins import ConfigError
from connectx.history.folds.failovers import failovers
from connectx.history.folds.rebalances import rebalances
from connectx.history.folds.runs import RunState, runs
from connectx.model.events import Event, EventKind
from connectx.verify.check.attribution import fenced

Events: TypeAlias = "Sequence[Event]"
Scenario: TypeAlias = "str | Callable[[Events], bool]"


def unreached(events: Events, scenarios: Sequence[Scenario]) -> list[str]:
    """A reason for each scenario that the history does not show. Raises ConfigError for a name that is none."""
    reasons = []
    for scenario in scenarios:
        if isinstance(scenario, str) and scenario not in SCENARIOS:
            known = ", ".join(sorted(SCENARIOS))
            raise ConfigError([f"There is no scenario {scenario!r}; there are {known}, and functions of the events."])
        reached, what = SCENARIOS[scenario] if isinstance(scenario, str) else (scenario, "")
        if not reached(events):
            name = scenario if isinstance(scenario, str) else getattr(scenario, "__name__", "given as a function")
            reasons.append(f"the scenario {name} was not reached" + (f" ({what})" if what else ""))
    return reasons


def _hit(fault: str) -> Callable[[Events], bool]:
    return lambda events: any(found.fault == fault and found.held for found in failovers(events))


def _rebalanced(events: Events) -> bool:
    began = min((run.start_ms for run in runs(events) if run.task is not None), default=None)
    rounds = [found for found in rebalances(events) if found.generation is not None]
    return began is not None and any(found.start_ms > began for found in rounds)


def _moved(events: Events) -> bool:
    started = [run for run in runs(events) if run.task is not None and run.reached(RunState.RUNNING) is not None]
    ran = {(run.task_id, run.worker) for run in started}
    tasks = [task for task, _ in ran]
    return len(tasks) > len(set(tasks))


def _has(kind: EventKind) -> Callable[[Events], bool]:
    return lambda events: any(event.kind is kind for event in events)


SCENARIOS: Mapping[str, tuple[Callable[[Events], bool], str]] = {
    "aborted": (_has(EventKind.TRANSACTION_ABORTED), "no transaction was aborted"),
    "fenced": (lambda events: bool(fenced(events)), "no writer was shut out"),
    "killed": (_hit("kill"), "no worker was killed while it ran a task"),
    "moved": (_moved, "no task ran on a second worker"),
    "partitioned": (_hit("partition"), "no worker was cut off while it ran a task"),
    "paused": (_hit("pause"), "no worker was paused while it ran a task"),
    "rebalanced": (_rebalanced, "no rebalance began after the first task had started"),
    "stalled": (_hit("stall"), "no worker was stalled while it ran a task"),
    "stopped": (_hit("stop"), "no worker was stopped while it ran a task"),
}
