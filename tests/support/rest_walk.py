"""A walk through Kafka Connect's REST API: the same requests for any worker, and what it answered.

It compares nothing and knows no worker: `walk` returns one answer per step, with what differs from run to run (ids of
workers, times, versions, traces) replaced by words.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

JSON = {"content-type": "application/json"}
WAIT_S = 60.0
HELD_S = 0.3
TOPICS = "topics"


@dataclass(frozen=True)
class WorkerStep:
    """One request. `name` describes it; `until`: state that the connector must have before, with its tasks."""

    name: str
    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    until: tuple[str, str, int] | None = None  # connector, state, number of tasks in it; or TOPICS and their number


@dataclass(frozen=True)
class Answer:
    """What came back: status, the parsed body (None: none), and headers that a client may rely on."""

    status: int
    body: Any
    content_type: str
    location: str
    allow: tuple[str, ...]


def steps(folder: Path, topic: str) -> Iterator[WorkerStep]:
    """Every endpoint of the API, in an order that makes sense, on connectors `walk-source` and `walk-sink`."""
    source = {"connector.class": "FileStreamSource", "file": str(folder / "in.txt"), "topic": topic, "tasks.max": "1"}
    sink = {"connector.class": "FileStreamSink", "file": str(folder / "out.txt"), "topics": topic, "tasks.max": "1"}
    yield from _worker_steps()
    yield from _creation_steps(source)
    yield from _reading_steps()
    yield from _changing_steps(source)
    yield from _sink_steps(sink)
    yield from _offset_steps()
    yield from _plugin_steps(source)
    yield from _refusal_steps()
    yield from _logger_steps()
    yield WorkerStep("delete", "DELETE", "/connectors/walk-source")
    yield WorkerStep("delete the sink", "DELETE", "/connectors/walk-sink")


def _worker_steps() -> Iterator[WorkerStep]:
    yield WorkerStep("root", "GET", "/")
    yield WorkerStep("health", "GET", "/health")
    yield WorkerStep("no connectors yet", "GET", "/connectors")
    yield WorkerStep("a slash at the end", "GET", "/connectors/")
    yield WorkerStep("head", "HEAD", "/connectors")
    yield WorkerStep("no such path", "GET", "/nothing")
    yield WorkerStep("no such method", "DELETE", "/connectors")
    yield WorkerStep("no such method below a connector", "POST", "/connectors/none/status")
    yield WorkerStep("options", "OPTIONS", "/connectors")
    yield WorkerStep("options of a path that is only written to", "OPTIONS", "/connectors/none/restart")
    yield WorkerStep("expand of no connectors", "GET", "/connectors?expand=status")


def _creation_steps(source: dict[str, str]) -> Iterator[WorkerStep]:
    name = "walk-source"
    yield WorkerStep("create with an unknown field", "POST", "/connectors", {"name": name, "config": {}, "extra": 1})
    yield WorkerStep("create without a class", "POST", "/connectors", {"name": name, "config": {"file": "x"}})
    yield WorkerStep(
        "create with an unknown class", "POST", "/connectors", {"name": name, "config": {"connector.class": "No"}}
    )
    other = {**source, "name": "other"}
    yield WorkerStep("create under two names", "POST", "/connectors", {"name": name, "config": other})
    yield WorkerStep(
        "create in no state", "POST", "/connectors", {"name": name, "config": source, "initial_state": "X"}
    )
    yield WorkerStep("create without a topic", "POST", "/connectors", {"name": name, "config": {**source, "topic": ""}})
    yield WorkerStep(
        "create with wrong tasks.max", "POST", "/connectors", {"name": name, "config": {**source, "tasks.max": "x"}}
    )
    yield WorkerStep("create not JSON", "POST", "/connectors", "{", JSON)
    yield WorkerStep("create as text", "POST", "/connectors", "{}", {"content-type": "text/plain"})
    yield WorkerStep("create", "POST", "/connectors", {"name": name, "config": source})
    yield WorkerStep("create again", "POST", "/connectors", {"name": name, "config": source})
    paused = {"name": "walk paused ü", "config": source, "initial_state": "paused"}
    yield WorkerStep("create paused", "POST", "/connectors", paused)
    at = "/connectors/walk%20paused%20%C3%BC"
    yield WorkerStep("paused from the start", "GET", at + "/status", until=("walk%20paused%20%C3%BC", "PAUSED", 0))
    yield WorkerStep("delete the paused one", "DELETE", at)
    stopped = {"name": "walk-stopped", "config": source, "initial_state": "STOPPED"}
    yield WorkerStep("create stopped", "POST", "/connectors", stopped)
    yield WorkerStep(
        "stopped from the start", "GET", "/connectors/walk-stopped/status", until=("walk-stopped", "STOPPED", 0)
    )
    yield WorkerStep("delete the stopped one", "DELETE", "/connectors/walk-stopped")


def _reading_steps() -> Iterator[WorkerStep]:
    at = "/connectors/walk-source"
    yield WorkerStep("status", "GET", at + "/status", until=("walk-source", "RUNNING", 1))
    yield WorkerStep("info", "GET", at)
    yield WorkerStep("config", "GET", at + "/config")
    yield WorkerStep("tasks", "GET", at + "/tasks")
    yield WorkerStep("tasks-config", "GET", at + "/tasks-config")
    yield WorkerStep("task status", "GET", at + "/tasks/0/status")
    yield WorkerStep("status of no task", "GET", at + "/tasks/7/status")
    yield WorkerStep("status of a task that is no number", "GET", at + "/tasks/x/status")
    yield WorkerStep("topics", "GET", at + "/topics", until=("walk-source", TOPICS, 1))
    yield WorkerStep("topics reset", "PUT", at + "/topics/reset")
    yield WorkerStep("restart only what failed", "POST", at + "/restart?includeTasks=true&onlyFailed=true")
    yield WorkerStep("names", "GET", "/connectors")
    yield WorkerStep("expand status", "GET", "/connectors?expand=status")
    yield WorkerStep("expand info", "GET", "/connectors?expand=info")
    yield WorkerStep("expand both", "GET", "/connectors?expand=info&expand=status")
    yield WorkerStep("expand unknown", "GET", "/connectors?expand=metadata")
    for path in ("", "/config", "/status", "/tasks", "/tasks-config", "/tasks/0/status", "/topics", "/offsets"):
        yield WorkerStep(f"of no connector: {path or '/'}", "GET", "/connectors/none" + path)


def _changing_steps(source: dict[str, str]) -> Iterator[WorkerStep]:
    at, running = "/connectors/walk-source", ("walk-source", "RUNNING", 1)
    yield WorkerStep("put config", "PUT", at + "/config", {**source, "batch.size": 100})
    yield WorkerStep("put config of another name", "PUT", at + "/config", {**source, "name": "other"})
    yield WorkerStep("put a config that is a list", "PUT", at + "/config", [])
    yield WorkerStep("put a config with an object in it", "PUT", at + "/config", {**source, "file": {}})
    yield WorkerStep("put an invalid config", "PUT", at + "/config", {**source, "topic": ""})
    yield WorkerStep("put a new connector", "PUT", "/connectors/walk-new/config", source)
    yield WorkerStep("delete the new one", "DELETE", "/connectors/walk-new")
    yield WorkerStep("patch", "PATCH", at + "/config", {"batch.size": None, "tasks.max": "1"}, until=running)
    yield WorkerStep("patch of no connector", "PATCH", "/connectors/none/config", {"a": "b"})
    yield WorkerStep("patch to an invalid config", "PATCH", at + "/config", {"topic": None})
    yield WorkerStep("restart with tasks", "POST", at + "/restart?includeTasks=true", until=running)
    yield WorkerStep("restart", "POST", at + "/restart", until=running)
    yield WorkerStep("restart with a flag of no sense", "POST", at + "/restart?onlyFailed=maybe", until=running)
    yield WorkerStep("restart a task", "POST", at + "/tasks/0/restart", until=running)
    yield WorkerStep("restart no task", "POST", at + "/tasks/7/restart", until=running)
    yield WorkerStep("restart no connector", "POST", "/connectors/none/restart")
    yield WorkerStep("restart no connector with tasks", "POST", "/connectors/none/restart?includeTasks=true")
    yield WorkerStep("restart a task of no connector", "POST", "/connectors/none/tasks/0/restart")
    yield WorkerStep("pause", "PUT", at + "/pause", until=running)
    yield WorkerStep("paused", "GET", at + "/status", until=("walk-source", "PAUSED", 1))
    yield WorkerStep("resume", "PUT", at + "/resume")
    yield WorkerStep(
        "alter offsets of one that runs",
        "PATCH",
        at + "/offsets",
        {"offsets": [{"partition": {}, "offset": {}}]},
        until=running,
    )
    yield WorkerStep("reset offsets of one that runs", "DELETE", at + "/offsets")
    for verb in ("pause", "resume", "stop"):
        yield WorkerStep(f"{verb} no connector", "PUT", f"/connectors/none/{verb}")
    yield WorkerStep("delete no connector", "DELETE", "/connectors/none")
    yield WorkerStep("topics reset of no connector", "PUT", "/connectors/none/topics/reset")


def _sink_steps(sink: dict[str, str]) -> Iterator[WorkerStep]:
    at = "/connectors/walk-sink"
    yield WorkerStep("create a sink", "POST", "/connectors", {"name": "walk-sink", "config": sink})
    yield WorkerStep("status of the sink", "GET", at + "/status", until=("walk-sink", "RUNNING", 1))
    yield WorkerStep("info of the sink", "GET", at)
    yield WorkerStep("tasks of the sink", "GET", at + "/tasks")
    yield WorkerStep("stop the sink", "PUT", at + "/stop")
    yield WorkerStep("the sink is stopped", "GET", at + "/status", until=("walk-sink", "STOPPED", 0))
    topic = sink["topics"]
    entry = {"partition": {"kafka_topic": topic, "kafka_partition": "0"}, "offset": {"kafka_offset": "1"}}
    yield WorkerStep("alter offsets of the sink", "PATCH", at + "/offsets", {"offsets": [entry]})
    yield WorkerStep("offsets of the sink", "GET", at + "/offsets")
    for name, partition, offset in (
        ("without a topic", {"kafka_partition": 0}, {"kafka_offset": 1}),
        ("with a partition that is no number", {"kafka_topic": topic, "kafka_partition": "x"}, {"kafka_offset": 1}),
        ("with an offset that is no number", {"kafka_topic": topic, "kafka_partition": 0}, {"kafka_offset": "x"}),
        ("with an offset below zero", {"kafka_topic": topic, "kafka_partition": 0}, {"kafka_offset": -1}),
        ("with another offset key", {"kafka_topic": topic, "kafka_partition": 0}, {"position": 1}),
        ("with an empty offset", {"kafka_topic": topic, "kafka_partition": 0}, {}),
    ):
        body = {"offsets": [{"partition": partition, "offset": offset}]}
        yield WorkerStep(f"alter offsets of the sink {name}", "PATCH", at + "/offsets", body)
    reset = {"offsets": [{"partition": {"kafka_topic": topic, "kafka_partition": 0}, "offset": None}]}
    yield WorkerStep("reset one partition of the sink", "PATCH", at + "/offsets", reset)
    yield WorkerStep("offsets of the sink after it", "GET", at + "/offsets")
    yield WorkerStep("reset offsets of the sink", "DELETE", at + "/offsets")
    yield WorkerStep("no offsets of the sink", "GET", at + "/offsets")


def _offset_steps() -> Iterator[WorkerStep]:
    at = "/connectors/walk-source"
    yield WorkerStep("stop", "PUT", at + "/stop")
    yield WorkerStep("stopped", "GET", at + "/status", until=("walk-source", "STOPPED", 0))
    yield WorkerStep("tasks of a stopped one", "GET", at + "/tasks")
    yield WorkerStep("offsets", "GET", at + "/offsets")
    entry = {"partition": {"filename": "FILE"}, "offset": {"position": 3}}
    yield WorkerStep("alter offsets", "PATCH", at + "/offsets", {"offsets": [entry]})
    yield WorkerStep("altered", "GET", at + "/offsets")
    for name, body in (
        ("alter nothing", {"offsets": []}),
        ("alter without offsets", {}),
        ("alter without a partition", {"offsets": [{"offset": {}}]}),
        ("alter with an empty partition", {"offsets": [{"partition": {}, "offset": {"position": 1}}]}),
        ("alter with an unknown field", {"offsets": [entry], "more": 1}),
        ("alter with an unknown field inside", {"offsets": [{**entry, "more": 1}]}),
        ("alter with an offset that is a number", {"offsets": [{**entry, "offset": 3}]}),
        ("alter to a position that is no number", {"offsets": [{**entry, "offset": {"position": "x"}}]}),
        ("alter to a position below zero", {"offsets": [{**entry, "offset": {"position": -1}}]}),
        ("alter another partition key", {"offsets": [{"partition": {"file": "x"}, "offset": {"position": 1}}]}),
        ("alter with two entries for one partition", {"offsets": [entry, entry]}),
    ):
        yield WorkerStep(name, "PATCH", at + "/offsets", body)
    yield WorkerStep("reset offsets", "DELETE", at + "/offsets")
    yield WorkerStep("no offsets", "GET", at + "/offsets")
    for method in ("PATCH", "DELETE"):
        given = {"offsets": [entry]} if method == "PATCH" else None
        yield WorkerStep(f"offsets of no connector: {method}", method, "/connectors/none/offsets", given)
    yield WorkerStep("restart one that is stopped", "POST", at + "/restart")
    yield WorkerStep("restart one that is stopped with tasks", "POST", at + "/restart?includeTasks=true")
    yield WorkerStep("pause one that is stopped", "PUT", at + "/pause")
    yield WorkerStep("stop one that is paused", "PUT", at + "/stop")


def _plugin_steps(source: dict[str, str]) -> Iterator[WorkerStep]:
    at = "/connector-plugins"
    yield WorkerStep("plugins", "GET", at)
    yield WorkerStep("all plugins", "GET", at + "?connectorsOnly=false")
    yield WorkerStep(
        "config of a plugin", "GET", at + "/org.apache.kafka.connect.file.FileStreamSourceConnector/config"
    )
    yield WorkerStep("config of a plugin by its alias", "GET", at + "/FileStreamSource/config")
    yield WorkerStep("config of a converter", "GET", at + "/org.apache.kafka.connect.json.JsonConverter/config")
    yield WorkerStep("config of no plugin", "GET", at + "/no.such.Plugin/config")  # None is an override policy in Java
    yield WorkerStep("validate", "PUT", at + "/FileStreamSource/config/validate", source)
    yield WorkerStep("validate an empty one", "PUT", at + "/FileStreamSource/config/validate", {})
    wrong = {**source, "name": "x", "tasks.max": "x", "topic": ""}
    yield WorkerStep("validate a wrong one", "PUT", at + "/FileStreamSourceConnector/config/validate", wrong)
    yield WorkerStep("validate as another class", "PUT", at + "/FileStreamSink/config/validate", source)
    yield WorkerStep("validate no plugin", "PUT", at + "/None/config/validate", {"connector.class": "None"})


def _refusal_steps() -> Iterator[WorkerStep]:
    at = "/connectors/walk-source"
    yield WorkerStep("task configs without a signature", "POST", at + "/tasks", [])
    wrong = {"X-Connect-Authorization": "AAAA", "X-Connect-Request-Signature-Algorithm": "HmacSHA256"}
    yield WorkerStep("task configs with a wrong signature", "POST", at + "/tasks", [], wrong)
    unknown = {**wrong, "X-Connect-Request-Signature-Algorithm": "None"}
    yield WorkerStep("task configs with an unknown algorithm", "POST", at + "/tasks", [], unknown)
    broken = {**wrong, "X-Connect-Authorization": "%%%"}
    yield WorkerStep("task configs with a signature that is not Base64", "POST", at + "/tasks", [], broken)
    yield WorkerStep("fence without a signature", "PUT", at + "/fence")
    yield WorkerStep("fence with a wrong signature", "PUT", at + "/fence", headers=wrong)


def _logger_steps() -> Iterator[WorkerStep]:
    at = "/admin/loggers"
    yield WorkerStep("set a logger", "PUT", at + "/walk.logger", {"level": "debug"})
    yield WorkerStep("a logger", "GET", at + "/walk.logger")
    yield WorkerStep("set it again", "PUT", at + "/walk.logger", {"level": "DEBUG"})
    yield WorkerStep("no logger", "GET", at + "/walk.none")
    yield WorkerStep("the root logger", "GET", at + "/root")
    yield WorkerStep("set a logger to no level", "PUT", at + "/walk.logger", {"level": "LOUD"})
    yield WorkerStep("set a logger without a level", "PUT", at + "/walk.logger", {})
    yield WorkerStep("set a logger in no scope", "PUT", at + "/walk.logger?scope=none", {"level": "INFO"})
    yield WorkerStep("set a logger of the cluster", "PUT", at + "/walk.logger?scope=cluster", {"level": "WARN"})
    yield WorkerStep(
        "set a logger of the cluster to no level", "PUT", at + "/walk.logger?scope=cluster", {"level": "LOUD"}
    )
    yield WorkerStep("loggers", "GET", at)


def walk(url: str, folder: Path, topic: str) -> dict[str, Answer]:
    """Take every step at the worker at `url`; the answer of each step by its name."""
    (folder / "in.txt").write_text("one\ntwo\nthree\n")
    answers: dict[str, Answer] = {}
    with httpx.Client(base_url=url.rstrip("/"), timeout=100, trust_env=False) as http:
        for step in steps(folder, topic):
            if step.until is not None:
                _wait(http, *step.until)
            assert step.name not in answers, f"two steps are called {step.name}"
            answers[step.name] = _take(http, step, folder, topic)
    return answers


def _take(http: httpx.Client, step: WorkerStep, folder: Path, topic: str) -> Answer:
    content, headers = step.body, dict(step.headers)
    if step.body is not None and not isinstance(step.body, str):
        content = json.dumps(step.body).replace('"FILE"', json.dumps(str(folder / "in.txt")))
        headers = {**JSON, **headers}
    until = time.monotonic() + WAIT_S
    while True:
        answer = http.request(step.method, step.path, content=content, headers=headers)
        if not _may_change(step, answer) or time.monotonic() > until:
            break
        time.sleep(0.1)  # what was answered is asked again, as every client must while the group rebalances
    known = {str(folder): "FOLDER", topic: "TOPIC", urlsplit(str(http.base_url)).netloc: "WORKER"}
    allow = tuple(sorted(part.strip() for part in answer.headers.get("allow", "").split(",") if part.strip()))
    return Answer(
        answer.status_code,
        _normal(answer.text, known),
        answer.headers.get("content-type", "").replace(" ", ""),
        answer.headers.get("location", "").removeprefix(str(http.base_url)),
        allow,
    )


def _may_change(step: WorkerStep, answer: httpx.Response) -> bool:
    """True for answers during a rebalance, and for those of a worker that has not read its peer's write yet."""
    if answer.status_code == 409:
        return "already exists" not in answer.text
    return answer.status_code == 500 and "rebalance" in answer.text


def _wait(http: httpx.Client, connector: str, state: str, tasks: int) -> None:
    """Wait until it is so and stays so: a new configuration takes a moment to reach the tasks."""
    since, shown = time.monotonic(), ""
    until = since + WAIT_S
    while (now := time.monotonic()) < until:
        answer = http.get(f"/connectors/{connector}/{'topics' if state == TOPICS else 'status'}")
        shown = answer.text
        if not answer.is_success or not _is(answer.json(), connector, state, tasks):
            since = now
        elif now - since > HELD_S:
            return
        time.sleep(0.05)
    raise AssertionError(f"{connector} is not {state} with {tasks} tasks after {WAIT_S:g} s: {shown}")


def _is(shown: Any, connector: str, state: str, tasks: int) -> bool:
    if state == TOPICS:
        return len(shown[connector]["topics"]) == tasks
    return bool(shown["connector"]["state"] == state and [one["state"] for one in shown["tasks"]] == [state] * tasks)


def _normal(text: str, known: dict[str, str]) -> Any:
    if not text:
        return None
    for found, word in known.items():
        text = text.replace(found, word)
    try:
        return _without_times(json.loads(text))
    except ValueError:
        return text


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _masked_value(key, _without_times(inner)) for key, inner in value.items()}
    return [_without_times(inner) for inner in value] if isinstance(value, list) else value


def _masked_value(key: str, value: Any) -> Any:
    if key == "last_modified" and value is not None:
        return "TIME"
    if key == "trace":
        return "TRACE"
    return re.sub(r"^\d+\.\d+\.\d+\S*$", "VERSION", value) if key == "version" and isinstance(value, str) else value
