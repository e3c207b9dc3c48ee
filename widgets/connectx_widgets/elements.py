"""What a panel shows, as flat elements with ids: plain JSON that the page keeps and draws. Pure.

An element is a part of a `Timeline` as JSON. It holds moments and lanes, no duration and no age: what lasts is drawn by
the page's own clock, in the window that is shown. So an element changes only when something happened, and only changed
elements are sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from connectx.history.folds.flow import Flow
from connectx.history.folds.lost import LostWork
from connectx.history.folds.snapshot import Snapshot, WorkSnapshot
from connectx.history.folds.totals import Totals
from connectx.history.render.shapes import SIGNS
from connectx.history.render.timeline import Band, Bar, BarPart, Mark, Row, Timeline
from connectx.history.sentences.stories import Story
from connectx.views import gist, masked_text

Element = dict[str, Any]
Elements = dict[str, Element]

_PATCHED = ("connector", "task", "flow")
"""Kinds of which only some fields change with each reading of the numbers."""
_TROUBLE = ("zombie", "by_zombies", "retries", "errors")
FAILED_NAMED = 10
"""How many failed tasks a connector's element names; the rest is counted."""


def timeline_elements(timeline: Timeline, late: Mapping[str, int] | None = None) -> Elements:
    """Rows, bars, marks and bands of a whole history; `late`: when overdue workers had their last heartbeat.

    Ids: `row:<worker>`, `bar:<worker>:<first sequence number>`, `mark:<sequence number>`, `band:<generation>`.
    """
    elements: Elements = {}
    for order, row in enumerate(timeline.rows):
        elements[f"row:{row.worker}"] = {**_row(row, order), "late": (late or {}).get(row.worker)}
        for bar in (*row.bars, *row.connector_bars):
            elements[f"bar:{row.worker}:{bar.parts[0].seq}"] = _bar(row, bar)
        for mark in row.marks:
            elements[f"mark:{mark.seq}"] = _mark(row.worker, mark)
    for mark in timeline.marks:
        elements[f"mark:{mark.seq}"] = _mark(None, mark)
    for band in timeline.bands:
        elements[f"band:{'next' if band.generation is None else band.generation}"] = _band(band)
    return elements


def _row(row: Row, order: int) -> Element:
    standing = row.standing
    return {
        "kind": "row",
        "order": order,
        "worker": row.worker,
        "state": row.state.value,
        "words": standing.description,
        "frozen": None if standing.frozen is None else standing.frozen.value,
        "cut": standing.cut,
        "gone": standing.life.is_gone,
        "generation": standing.generation,
        "sign": SIGNS[row.state],
        "leader": row.is_leader,
    }


def _bar(row: Row, bar: Bar) -> Element:
    return {
        "kind": "bar",
        "worker": row.worker,
        "label": bar.label,
        "lane": bar.lane,
        "thin": bar.task is None,
        "colour": bar.colour,
        "text": bar.text_colour,
        "parts": [_part(part) for part in bar.parts],
    }


def _part(part: BarPart) -> Element:
    return {
        "state": part.state.value,
        "from": part.start_ms,
        "to": part.end_ms,
        "seq": part.seq,
        "what": part.what,
        "why": part.why,
    }


def _mark(worker: str | None, mark: Mark) -> Element:
    shown = {"kind": "mark", "worker": worker, "lane": mark.lane, "mark": mark.kind.value, "at": mark.time_ms}
    return {**shown, "seq": mark.seq, "title": mark.title}


def _band(band: Band) -> Element:
    shown = {"kind": "band", "generation": band.generation, "from": band.start_ms, "to": band.end_ms}
    return {**shown, "title": band.title}


def connector_elements(
    snapshot: Snapshot,
    numbers: Mapping[str, Mapping[str, Any]],
    totals: Mapping[tuple[str, int | None], Totals] = MappingProxyType({}),
    colours: Mapping[str, str] = MappingProxyType({}),
    action_of: Callable[[str], Mapping[str, Any] | None] = lambda connector: None,
) -> Elements:
    """One element per connector: its state, tasks, live `numbers`, `totals` and last action. Id `connector:<name>`."""
    return {
        f"connector:{connector.connector}": {
            **_connector(connector, snapshot.tasks, numbers.get(connector.connector, {})),
            **_totals(totals.get((connector.connector, None))),
            "colour": colours.get(connector.connector, ""),
            "action": action_of(connector.connector),
        }
        for connector in snapshot.connectors
    }


def _connector(connector: WorkSnapshot, tasks: Iterable[WorkSnapshot], numbers: Mapping[str, Any]) -> Element:
    mine = [task for task in tasks if task.connector == connector.connector]
    failed = [task for task in mine if task.state == "FAILED"]
    return {
        "kind": "connector",
        "name": connector.connector,
        "state": connector.state,
        "worker": connector.worker,
        "since": connector.since_ms,
        "read": connector.read_seq,
        "tasks": {state: sum(task.state == state for task in mine) for state in sorted({t.state for t in mine})},
        "failed": [f"{task.connector}-{task.task}" for task in failed[:FAILED_NAMED]],
        "why": next((_why(work) for work in (connector, *failed) if work.trace), ""),
        **_known(numbers),
    }


def _known(numbers: Mapping[str, Any], without: Sequence[str] = ()) -> dict[str, Any]:
    """Without numbers that are not known, and without counts of trouble that are 0."""
    known = {name: number for name, number in numbers.items() if number is not None and name not in without}
    return {name: number for name, number in known.items() if number or name not in _TROUBLE}


def _totals(totals: Totals | None) -> dict[str, int]:
    return {} if totals is None else asdict(totals)


def flow_elements(flows: Iterable[Flow], sizes: Mapping[str, int]) -> Elements:
    """One element per topic with its sources and sinks, and about how many records it holds. Id `flow:<topic>`."""
    return {
        f"flow:{flow.topic}": {
            "kind": "flow",
            "topic": flow.topic,
            "sources": list(flow.sources),
            "sinks": list(flow.sinks),
            "size": sizes.get(flow.topic),
        }
        for flow in flows
    }


def story_elements(stories: Iterable[Story]) -> Elements:
    """One element per sentence. Id `story:<sequence number of the event that it begins with>`."""
    return {
        f"story:{story.seq}": {"kind": "story", "seq": story.seq, "at": story.time_ms, "sentence": story.sentence}
        for story in stories
    }


def lost_elements(lost: Iterable[LostWork]) -> Elements:
    """One element per dead worker whose work waits: what it is, and when it moves at the latest. Id `lost:<worker>`."""
    return {
        f"lost:{work.worker}": {
            "kind": "lost",
            "worker": work.worker,
            "work": [*map(str, work.tasks), *work.connectors],
            "due": work.due_ms if work.waits_for else None,
            "waits": list(work.waits_for),
        }
        for work in lost
    }


def task_elements(
    snapshot: Snapshot,
    numbers: Mapping[str, Mapping[str, Any]],
    totals: Mapping[tuple[str, int | None], Totals] = MappingProxyType({}),
) -> Elements:
    """One element per task for the details of its connector, with live numbers and totals. Id `task:<name>`."""
    return {
        f"task:{task.connector}-{task.task}": {
            "kind": "task",
            "connector": task.connector,
            "task": task.task,
            "state": task.state,
            "worker": task.worker,
            "epoch": task.producer_epoch,
            "since": task.since_ms,
            "why": masked_text(gist(task.trace)),
            **_known(numbers.get(f"{task.connector}-{task.task}", {}), without=("moved", "zombie")),
            **_totals(totals.get((task.connector, task.task))),
        }
        for task in snapshot.tasks
    }


def failures(snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """Connector to the traces of what has failed of it, by "connector" or "task 0"; secrets hidden."""
    found: dict[str, dict[str, str]] = {}
    for work in (*snapshot.connectors, *snapshot.tasks):
        if work.trace:
            who = "connector" if work.task is None else f"task {work.task}"
            found.setdefault(work.connector, {})[who] = masked_text(work.trace)
    return found


def _why(work: WorkSnapshot) -> str:
    """The line of its trace with the error."""
    name = work.connector if work.task is None else f"{work.connector}-{work.task}"
    return f"{name}: {masked_text(gist(work.trace))}"


def changes(before: Elements, after: Elements) -> tuple[Elements, Elements, list[str]]:
    """What to set, which fields to replace (None: gone) and what to drop, so that `before` becomes `after`."""
    changed = {key: element for key, element in after.items() if before.get(key) != element}
    replaced = {
        key: {name: element.get(name) for name in {**old, **element} if old.get(name) != element.get(name)}
        for key, element in changed.items()
        if (old := before.get(key)) is not None and element["kind"] in _PATCHED
    }
    new = {key: element for key, element in changed.items() if key not in replaced}
    return new, replaced, [key for key in before if key not in after]


def newest(elements: Elements, limit_bytes: int) -> tuple[Elements, bool]:
    """As many elements as fit into `limit_bytes` of JSON, newest of the timeline last to go; and whether all fit."""
    fixed = {key: element for key, element in elements.items() if _moment(element) is None}
    rest = sorted((key for key in elements if key not in fixed), key=lambda key: -(_moment(elements[key]) or 0))
    left = limit_bytes - size(fixed.items())
    for number, key in enumerate(rest):
        left -= size([(key, elements[key])])
        if left < 0:
            return {**fixed, **{name: elements[name] for name in rest[:number]}}, False
    return dict(elements), True


def _moment(element: Element) -> int | None:
    """When an element was last true; None for what is always needed: a page asks for others that are missing."""
    match element["kind"]:
        case "bar":
            last = element["parts"][-1]
            return 1 << 62 if last["to"] is None else int(last["to"])
        case "mark" | "story":
            return int(element["at"])
        case "task" | "connector":
            return int(element["since"])
        case "band":
            return 1 << 62 if element["to"] is None else int(element["to"])
        case _:
            return None


def size(items: Iterable[tuple[str, Element]]) -> int:
    """About how many bytes of JSON these elements with their ids are."""
    return sum(len(key) + len(json.dumps(element)) + 6 for key, element in items)


def is_running(elements: Elements) -> bool:
    """Whether anything changes as time passes: something runs, or a worker is there whose age of heartbeat grows."""
    return any(_is_running(element) for element in elements.values())


def _is_running(element: Element) -> bool:
    if element["kind"] == "row":
        return not element["gone"]
    return element["kind"] == "bar" and element["parts"][-1]["to"] is None


def chunks(elements: Elements, limit_bytes: int) -> Iterator[Elements]:
    """The elements in messages of at most `limit_bytes` each (or one element)."""
    part: Elements = {}
    total = 0
    for key, element in elements.items():
        own = size([(key, element)])
        if part and total + own > limit_bytes:
            yield part
            part, total = {}, 0
        part[key] = element
        total += own
    if part:
        yield part
