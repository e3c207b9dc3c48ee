"""The plan of an import: changed connectors, and tasks that would move, by the real assignor. Pure.

It predicts Kafka Connect's incremental cooperative rounds from the present assignment. Only a connector itself knows
how many tasks it will create, so `tasks.max` is assumed: fewer tasks may move than predicted, more hardly ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from connectx.core.group.assignor import AssignorMemory, IncrementalCooperativeAssignor
from connectx.history.wording import plural
from connectx.model.group import WorkSet
from connectx.model.ids import TASK_ORDER, TaskId
from connectx.model.spelling import without_effect
from connectx.values import Value
from connectx.views import Row

Config = Mapping[str, str | None]

_ROUNDS = 50


class Action(StrEnum):
    """What would become of a connector."""

    CREATE = "create"
    CHANGE = "change"
    KEEP = "keep"
    INVALID = "invalid"


class Declared(Value):
    """A connector of the file; `stopped`: it would have no tasks."""

    name: str
    config: Config
    stopped: bool = False


class Present(Value):
    config: Config
    tasks: int
    stopped: bool = False


class Planned(Value):
    """One connector: what would be done, which keys differ as (old, new), how many tasks it would have at most.

    `warnings` has a sentence for each key that would have no effect.
    """

    name: str
    action: Action
    diff: Mapping[str, tuple[str | None, str | None]]
    tasks: int
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def rows(self) -> list[Row]:
        if self.action is Action.INVALID:
            return [{"connector": self.name, "would": "be refused", "why": problem} for problem in self.problems]
        effects = {Action.CREATE: "be created", Action.CHANGE: "change", Action.KEEP: "stay as it is"}
        tasks = ("" if self.action is Action.KEEP else "at most ") + plural(self.tasks, "task")
        lines = [f"{key}: {_shown(old)} -> {_shown(new)}" for key, (old, new) in sorted(self.diff.items())]
        if self.action is Action.CREATE:
            lines = []
        first: Row = {"connector": self.name, "would": effects[self.action], "why": tasks}
        return [first, *({"connector": "", "would": "", "why": line} for line in (*lines, *self.warnings))]


class Move(Value):
    """A connector or task, with the worker that runs it before and after the change. None: no worker."""

    item: str
    now: str | None
    then: str | None

    def row(self) -> Row:
        return {"work": self.item, "now": self.now or "-", "then": self.then or "-"}


class Plan(Value):
    """What would happen. `moves` is work that runs and goes elsewhere or ends, `starts` what begins, `restarts` tasks
    that get another configuration where they are; `rounds` is how often the group would rebalance for it."""

    connectors: tuple[Planned, ...]
    starts: tuple[Move, ...]
    moves: tuple[Move, ...]
    restarts: tuple[str, ...]
    rounds: int

    @property
    def is_valid(self) -> bool:
        return all(one.action is not Action.INVALID for one in self.connectors)

    def to_json(self) -> dict[str, Any]:
        return {
            "connectors": [
                {
                    "name": one.name,
                    "action": one.action.value,
                    "diff": {key: {"old": old, "new": new} for key, (old, new) in sorted(one.diff.items())},
                    "tasks": one.tasks,
                    "problems": list(one.problems),
                    "warnings": list(one.warnings),
                }
                for one in self.connectors
            ],
            **{
                kind: [{"work": move.item, "now": move.now, "then": move.then} for move in moves]
                for kind, moves in (("starts", self.starts), ("moves", self.moves))
            },
            "restarts": list(self.restarts),
            "rounds": self.rounds,
        }


def planned(wanted: Declared, present: Present | None, problems: Sequence[str], known: Collection[str] = ()) -> Planned:
    """What would become of one connector; `known` has the keys that its class, its type and its plugins define."""
    found = _planned(wanted, present, problems)
    return replace(found, warnings=without_effect(wanted.config.keys(), known))


def _planned(wanted: Declared, present: Present | None, problems: Sequence[str]) -> Planned:
    config = {**wanted.config, "name": wanted.name}
    if problems:
        return Planned(wanted.name, Action.INVALID, {}, 0 if present is None else present.tasks, tuple(problems))
    limit = _tasks_max(config)
    if present is None:
        new = {key: (None, value) for key, value in config.items()}
        return Planned(wanted.name, Action.CREATE, new, 0 if wanted.stopped else limit)
    old = {**present.config, "name": wanted.name}
    diff = {key: (old.get(key), config.get(key)) for key in {**old, **config} if old.get(key) != config.get(key)}
    if not diff:
        return Planned(wanted.name, Action.KEEP, {}, present.tasks)
    used_all = present.tasks == _tasks_max(present.config)
    tasks = limit if used_all or limit < present.tasks else present.tasks
    return Planned(wanted.name, Action.CHANGE, diff, 0 if present.stopped else tasks)


def plan(
    connectors: Sequence[Planned], present: Mapping[str, Present], work: Mapping[str, WorkSet], max_delay_ms: int = 0
) -> Plan:
    """Everything that would happen.

    Args:
        connectors: what would become of those in the file.
        present: all connectors of the cluster.
        work: worker to what it runs now.
        max_delay_ms: the workers' scheduled.rebalance.max.delay.ms.
    """
    counts = {name: one.tasks for name, one in present.items()}
    counts |= {one.name: one.tasks for one in connectors if one.action in (Action.CREATE, Action.CHANGE)}
    configured = WorkSet(
        tuple(sorted(counts)), tuple(TaskId(name, number) for name in sorted(counts) for number in range(counts[name]))
    )
    after, rounds = settled(work, configured, max_delay_ms) if work else ({}, 0)
    now, then = _owners(work), _owners(after)
    items = sorted({*now, *then}, key=_order)
    starts = tuple(Move(_name(item), None, then[item]) for item in items if item not in now)
    moves = tuple(
        Move(_name(item), now[item], then.get(item))
        for item in items
        if now.get(item, then.get(item)) != then.get(item)
    )
    changed = {one.name for one in connectors if one.action is Action.CHANGE}
    stay = [item for item in items if isinstance(item, TaskId) and now.get(item) == then.get(item) is not None]
    restarts = tuple(str(item) for item in stay if item.connector in changed)
    return Plan(tuple(connectors), starts, moves, restarts, rounds)


def settled(work: Mapping[str, WorkSet], configured: WorkSet, max_delay_ms: int) -> tuple[dict[str, WorkSet], int]:
    """Who runs what once the group has settled on `configured`, and after how many rounds that change anything."""
    everything = WorkSet()
    for held in work.values():
        everything = everything.plus(held)
    memory = AssignorMemory(previous=everything, previous_generation=1, previous_members=tuple(sorted(work)))
    assignor, claims, now_ms = IncrementalCooperativeAssignor(max_delay_ms), dict(work), 0
    for generation in range(2, _ROUNDS + 2):
        result = assignor.assign(
            memory, configured, claims, last_completed_generation=generation - 1, generation=generation, now_ms=now_ms
        )
        memory, claims = result.memory, dict(result.owners)
        now_ms = max(now_ms, result.scheduled_rebalance_ms)
        changed = any(result.assigned.values()) or any(result.revoked.values())
        if not changed and not result.delay_ms:
            return claims, generation - 2
    return claims, _ROUNDS


def _owners(work: Mapping[str, WorkSet]) -> dict[str | TaskId, str]:
    owners: dict[str | TaskId, str] = {}
    for worker, held in work.items():
        owners |= dict.fromkeys(held.connectors, worker)
        owners |= dict.fromkeys(held.tasks, worker)
    return owners


def _order(item: str | TaskId) -> tuple[int, Any]:
    return (1, TASK_ORDER(item)) if isinstance(item, TaskId) else (0, item)


def _name(item: str | TaskId) -> str:
    return f"task {item}" if isinstance(item, TaskId) else f"connector {item}"


def _tasks_max(config: Config) -> int:
    text = (config.get("tasks.max") or "1").strip()
    return int(text) if text.isdigit() else 1


def _shown(value: str | None) -> str:
    return "(none)" if value is None else value or "(empty)"
