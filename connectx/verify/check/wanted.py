"""What a check is asked for, and what its sides have in common wherever they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from connectx.values import Value
from connectx.verify.check.comparison import Comparison
from connectx.verify.check.dead_letters import NONE
from connectx.verify.check.keys import KeyComparison
from connectx.verify.check.rows import MAX_ROWS
from connectx.verify.check.scenarios import Scenario
from connectx.verify.check.sides import Sides, skipped_by

if TYPE_CHECKING:
    from connectx.model.events import Event
    from connectx.spark.slices import TaskSpark

Depth = Literal["rows", "keys"]


class Wanted(Value):
    """The arguments of `connectx.check` that say what to compare, and how."""

    topics: tuple[str, ...] = ()
    target: Any = None
    key: tuple[str, ...] = ()
    depth: Depth | None = None
    scenarios: tuple[Scenario, ...] = ()
    examples: int = 5
    max_rows: int = MAX_ROWS
    connectors: tuple[str, ...] = ()

    def is_by_key(self, sides: Sides) -> bool:
        """Whether only keys of these sides are compared: by default if they are too large and have a key."""
        if self.depth is not None:
            return self.depth == "keys"
        return bool(sides.named_key) and sum(topic.snapshot.size for topic in sides.topics) > self.max_rows


@dataclass(slots=True)
class Began:
    """How things stood when a check began, so that it does not wait for what comes later.

    Attributes:
        goals: how many rows each place is to get.
        written: by topic and partition, the offset after the last record.
    """

    goals: dict[str, int] = field(default_factory=dict)
    written: dict[str, Mapping[int, int]] = field(default_factory=dict)


class Places(Protocol):
    """What can be compared.

    Attributes:
        unseen: why not everything can be seen.
        waits: a topic is yet to come.
        begins: there are connectors, and none has committed anything yet.
        deleted: connectors of the history that do not exist any more, which are not checked.
        masked: hides the values of placeholders in a text.
    """

    comparisons: list[Comparison]
    unseen: list[str]
    waits: bool
    begins: bool
    deleted: tuple[str, ...]
    masked: Callable[[str], str]

    def gather(self) -> None:
        """Find everything that can be compared."""


def target_comparison(
    connectors: tuple[str, ...],
    sides: Sides,
    events: Sequence[Event],
    wanted: Wanted,
    spark: TaskSpark,
    *,
    classes: tuple[type, ...] = (),
    goal: int | None = None,
) -> Comparison:
    """Topics with the target that sinks write, row by row or by key.

    Args:
        classes: plugins that decode the records.
        goal: how many rows the target was to get when the check began.
    """
    by_key = wanted.is_by_key(sides)
    frame = wanted.target if hasattr(wanted.target, "mapInArrow") else None
    keys = KeyComparison(sides, spark, classes, frame)
    letters = NONE if by_key else sides.dead_letters
    return Comparison(
        connectors,
        keys.found() if by_key else sides.found(),
        keys.wanted() if by_key else sides.wanted(),
        ordered=sides.stored.ordered,
        exact=by_key or (sides.stored.lines and not sides.key),
        from_topic=True,
        tolerated=skipped_by(events, connectors, with_dead_letters=not letters.topic),
        unchecked=keys.unchecked if by_key else sides.unchecked,
        outdated=tuple if by_key else sides.outdated,
        hidden=(
            *(() if by_key else sides.doubts),
            *letters.hidden,
            *(reason for topic in sides.topics for reason in topic.snapshot.hidden),
        ),
        waits=any(topic.snapshot.waits for topic in sides.topics),
        goal=goal,
        dead_letters=(letters.topic, letters.count),
        count=keys.count if by_key else None,
    )
