"""The same walk through the REST API of a Kafka Connect worker and of ours: what they answer, field by field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.java_worker import JavaWorker
from tests.support.mixed_groups import Group
from tests.support.rest_walk import Answer, walk


@dataclass(frozen=True)
class Allowed:
    """A difference that is meant to be: where (patterns of a step's name and a field's path), and why."""

    step: str
    path: str
    why: str
    always: bool = True


MALFORMED = "|".join(
    (
        "create with an unknown field|create in no state|create not JSON|put a config that is a list",
        "put a config with an object in it|alter without a partition|alter with an unknown field( inside)?",
        "alter with an offset that is a number",
    )
)
REFUSED_OFFSETS = "alter with an empty partition|alter to a position .*|alter another partition key|.* below zero"
ALLOWED = [
    Allowed(MALFORMED, "status|body.error_code", "a body that makes no sense is the client's fault: 400, not 500"),
    Allowed(REFUSED_OFFSETS, "status|body.error_code", "offsets that no task can use are the client's fault: 400"),
    Allowed("validate an empty one|validate no plugin", "status|body.error_code", "likewise: Java wraps its own 400"),
    Allowed(".*", "body.message", "texts of errors are for readers; ours name the next step, Java's its classes"),
    Allowed("no such .*|create as text|.*tasks-config", "content_type", "Java forgets to say that these are JSON"),
    Allowed("options.*", "body", "in the order of the alphabet", always=False),
    Allowed("options.*", "content_type", "with its charset"),
    Allowed("no such method.*", "allow", "a 405 has to say what is allowed (RFC 9110); Java does not"),
    Allowed("root", "body.commit", "another program"),
    Allowed("tasks-config", "status|body.*", "gone from Kafka Connect since 4.0; older clients still ask for it"),
    Allowed("config of .*|validate.*", r".*\.documentation", "our own words"),
    Allowed("config of .*", r".*plugin\.version.*|.*order_in_group", "one version of each plugin is installed here"),
    Allowed("config of a converter", r".*\.(width|display_name)", "for forms"),
    Allowed("config of a converter", "body.converter.type.required", "nobody has to give it: it follows from the use"),
    Allowed("config of a plugin.*|validate.*", r".*batch.size.*", "a poll takes 8 MB here; Java's 2000 lines"),
    Allowed("config of a plugin.*", r".*rotated\.\S*", "Java's FileStreamSource follows no rotated files"),
    Allowed("validate.*", r"body.configs\.\S*plugin.version.*", "one version of each plugin is installed here"),
    Allowed("validate.*", r"body.configs\.\w+\.converter\..*", "Java shows the worker's converter as if it were given"),
    Allowed("validate.*", r"body.configs\.\S+.definition.order_in_group", "counted without the keys of versions"),
    Allowed("restart .*", r"body\..*version", "Java forgets it between two statuses, ours keeps it", always=False),
    Allowed("loggers", "body.*", "other loggers"),
    Allowed("the root logger", "body.level", "each process has its own"),
]


@pytest.mark.timeout(400)
def test_our_worker_answers_as_kafka_connect_does_but_for_what_is_listed(
    java_worker: JavaWorker, group: Callable[..., Group], topic: Callable[..., str], tmp_path: Path
) -> None:
    (python,) = group().start_python().workers
    with ThreadPoolExecutor(2) as pool:
        places = {"java": java_worker.url, "python": python.url}
        walks = {}
        for name, url in places.items():
            (tmp_path / name).mkdir()
            walks[name] = pool.submit(walk, url, tmp_path / name, topic(f"walk-{name}"))
        theirs, ours = walks["java"].result(), walks["python"].result()
    assert list(theirs) == list(ours)
    unmet, unlisted = {allowed for allowed in ALLOWED if allowed.always}, []
    for step in theirs:
        for path, one, other in differences(step, theirs[step], ours[step]):
            found = {allowed for allowed in ALLOWED if matches(allowed, step, path)}
            unmet -= found
            if not found:
                unlisted.append(f"{step}: {path}: Kafka Connect {one!r}, here {other!r}")
    assert not unlisted, "\n".join(unlisted)
    assert not unmet, f"these differences are no more: {[allowed.why for allowed in unmet]}"


def matches(allowed: Allowed, step: str, path: str) -> bool:
    return bool(re.fullmatch(allowed.step, step) and re.fullmatch(allowed.path, path))


def differences(step: str, theirs: Answer, ours: Answer) -> Iterator[tuple[str, Any, Any]]:
    """Paths of fields that differ, with both values; lists of named things are compared by name."""
    for name, one in asdict(theirs).items():
        yield from _different(name, _named(one), _named(asdict(ours)[name]))


def _different(path: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _different(f"{path}.{key}", one.get(key, "missing"), other.get(key, "missing"))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other, strict=True)):
            yield from _different(f"{path}[{index}]", *pair)
    elif one != other:
        yield path, one, other


def _named(value: Any) -> Any:
    """Keys of a configuration and plugins by their names instead of their places."""
    if isinstance(value, dict):
        return {key: _named(inner) for key, inner in value.items()}
    if not isinstance(value, list) or not value or not all(isinstance(entry, dict) for entry in value):
        return value
    if all("definition" in entry for entry in value):
        return {entry["value"]["name"]: entry for entry in value}
    if all("class" in entry for entry in value):
        headers = {entry["class"]: "too" for entry in value if entry["type"] == "header_converter"}
        return {entry["class"]: entry for entry in value if ".FileStream" in entry["class"]} | {"headers": headers}
    return {entry["name"]: entry for entry in value} if all("importance" in entry for entry in value) else value
