"""The leader's assignor for `default` groups: everything is given out anew in every round.

It decides from the names alone and remembers nothing. Mirrors Kafka Connect's EagerAssignor.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

from connectx.model.group import WorkSet
from connectx.model.ids import TASK_ORDER, TaskId


def assign_eagerly(configured: WorkSet, members: Iterable[str]) -> dict[str, WorkSet]:
    """Member id to its complete work: connectors in turn over the members by id, then, going on, tasks in turn.

    `members` has at least one member.
    """
    connectors: dict[str, list[str]] = {member: [] for member in sorted(members)}
    tasks: dict[str, list[TaskId]] = {member: [] for member in connectors}
    turn = cycle(connectors)
    for connector in sorted(configured.connectors):
        connectors[next(turn)].append(connector)
    for task in sorted(configured.tasks, key=TASK_ORDER):
        tasks[next(turn)].append(task)
    return {member: WorkSet(tuple(connectors[member]), tuple(tasks[member])) for member in connectors}
