"""Java and Python workers in one group: either leads, work moves both ways, and no offset is lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from connectx.errors.rest import RestError
from connectx.rest.bodies import CommittedOffset
from connectx.rest.client import RestClient
from tests.support.flows import GrowingFile
from tests.support.java_worker import FILE_SINK, FILE_SOURCE
from tests.support.mixed_groups import WAIT_S, Group
from tests.support.waiting import until

MakeGroup = Callable[..., Group]
MakeTopic = Callable[..., str]
Reader = Callable[[str], Callable[[], list[str]]]


def source(path: Path, topic: str) -> dict[str, str | None]:
    return {"connector.class": FILE_SOURCE, "file": str(path), "topic": topic, "tasks.max": "1"}


def sink(path: Path, topic: str) -> dict[str, str | None]:
    return {"connector.class": FILE_SINK, "file": str(path), "topics": topic, "tasks.max": "1"}


def offsets_are(client: RestClient, stored: object) -> bool:
    return bool(client.offsets("lines-in") == stored)


@pytest.mark.timeout(400)
def test_rolling_take_over_and_back_loses_nothing_and_repeats_nothing(
    group: MakeGroup, growing: GrowingFile, topic: MakeTopic, read_committed: Reader, tmp_path: Path
) -> None:
    ours, lines, out = group(), topic("taken"), tmp_path / "out.txt"
    first = ours.start_java(2)
    ours.client.create("lines-in", source(growing.path, lines))
    ours.client.create("lines-out", sink(out, lines))
    java = [worker.worker_id for worker in first]
    for name in ("lines-in", "lines-out"):
        ours.wait_on(name, java, 1)
    committed = read_committed(lines)
    until(committed, "lines of the Java workers", WAIT_S)

    python = ours.start_python(2)  # the Java workers leave one after the other, as in a rolling upgrade
    for worker in first:
        worker.stop()
    ids = [worker.url.split("/")[2] for worker in python.workers]
    for name in ("lines-in", "lines-out"):
        ours.wait_on(name, ids, 1)
    here = growing.lines
    until(lambda: len(committed()) > here, "lines of the Python workers", WAIT_S)

    (last,) = ours.start_java()  # and back
    python.close()
    for name in ("lines-in", "lines-out"):
        ours.wait_on(name, [last.worker_id], 1)
    here = growing.lines
    until(lambda: len(committed()) > here, "lines of the Java worker that came last", WAIT_S)

    growing.close()
    until(lambda: len(committed()) >= growing.lines, "the last line in the topic", WAIT_S)
    until(lambda: len(out.read_text().splitlines()) >= growing.lines, "the last line in the target", WAIT_S)
    assert committed() == growing.expected()
    assert out.read_text().splitlines() == growing.expected()


@pytest.mark.timeout(400)
def test_a_python_leader_serves_java_followers_and_takes_over_when_one_is_killed(
    group: MakeGroup, growing: GrowingFile, topic: MakeTopic, read_committed: Reader
) -> None:
    ours, lines = group(), topic("led")
    python = ours.start_python()
    (java,) = ours.start_java()
    (own,) = [worker.url.split("/")[2] for worker in python.workers]
    assert python.leader is not None
    ours.client.create("lines-in", source(growing.path, lines))
    ours.client.create("idle", source(growing.path.with_name("idle.txt"), lines))
    homes = [ours.wait_on(name, [own, java.worker_id], 1) for name in ("idle", "lines-in")]
    used = {home for where in homes for home in where.values()}
    assert used == {own, java.worker_id}, "the leader shares the work out"
    committed = read_committed(lines)
    until(committed, "lines", WAIT_S)

    java.kill()
    for name in ("idle", "lines-in"):
        ours.wait_on(name, [own], 1)
    here = growing.lines
    until(lambda: len(committed()) > here, "lines after the kill", WAIT_S)
    growing.close()
    until(lambda: len(committed()) >= growing.lines, "the last line", WAIT_S)
    assert committed() == growing.expected()


@pytest.mark.timeout(400)
def test_a_java_leader_serves_python_followers_and_takes_over_when_one_is_killed(
    group: MakeGroup, growing: GrowingFile, topic: MakeTopic, read_committed: Reader
) -> None:
    ours, lines = group(), topic("led")
    (java,) = ours.start_java()
    python = ours.start_python()
    (own,) = [worker.url.split("/")[2] for worker in python.workers]
    assert python.leader is None
    names = ["a", "b", "lines-in"]
    for name in names:
        path = growing.path if name == "lines-in" else growing.path.with_name(f"{name}.txt")
        ours.client.create(name, source(path, lines))
    homes = {name: ours.wait_on(name, [own, java.worker_id], 1) for name in names}
    assert {home for where in homes.values() for home in where.values()} == {own, java.worker_id}
    committed = read_committed(lines)
    until(committed, "lines", WAIT_S)

    for worker in python.workers:
        python.kill(worker.name)
    for name in names:
        ours.wait_on(name, [java.worker_id], 1)
    here = growing.lines
    until(lambda: len(committed()) > here, "lines after the kill", WAIT_S)
    growing.close()
    until(lambda: len(committed()) >= growing.lines, "the last line", WAIT_S)
    assert committed() == growing.expected()


@pytest.mark.timeout(400)
def test_requests_reach_the_leader_of_the_other_kind_and_every_worker_tells_the_same(
    group: MakeGroup, topic: MakeTopic, tmp_path: Path
) -> None:
    ours, lines = group(), topic("told")
    (java,) = ours.start_java()
    python = ours.start_python()
    (worker,) = python.workers
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    clients = [ours.client_of(url) for url in (java.url, worker.url)]
    clients[1].create("lines-in", source(path, lines))  # through the follower
    ours.wait_on("lines-in", [java.worker_id, worker.url.split("/")[2]], 1)
    stored: list[CommittedOffset] = [{"partition": {"filename": str(path)}, "offset": {"position": 8}}]
    for client in clients:
        until(partial(offsets_are, client, stored), "the same offsets from every worker", WAIT_S)

    clients[1].stop("lines-in")
    until(lambda: clients[0].status("lines-in")["connector"]["state"] == "STOPPED", "STOPPED at the leader", WAIT_S)
    clients[1].alter_offsets("lines-in", [{**stored[0], "offset": {"position": 4}}])
    assert clients[0].offsets("lines-in") == [{**stored[0], "offset": {"position": 4}}]
    assert clients[0].config("lines-in") == clients[1].config("lines-in")
    clients[1].delete("lines-in")
    until(lambda: clients[0].connectors() == [], "the deletion at the leader", WAIT_S)


@pytest.mark.timeout(400)
def test_a_class_that_a_worker_lacks_fails_its_task_and_names_the_workers_that_have_it(
    group: MakeGroup, tmp_path: Path
) -> None:
    ours = group()
    (java,) = ours.start_java()
    python = ours.start_python()
    theirs = "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"
    servers = ours.config["bootstrap.servers"]
    config = {"connector.class": theirs, "source.cluster.alias": "a", "target.cluster.alias": "b",
              "source.cluster.bootstrap.servers": servers, "target.cluster.bootstrap.servers": servers}  # fmt: skip
    for name in ("a", "b"):  # two connectors over two workers: one comes to Python
        ours.client_of(java.url).create(name, config)
    (own,) = [worker.url.split("/")[2] for worker in python.workers]

    def failed() -> list[str]:
        statuses = ours.client.statuses().values()
        parts = [part for status in statuses for part in (status["connector"], *status["tasks"])]
        return [part["trace"] for part in parts if part["state"] == "FAILED" and part["worker_id"] == own]

    trace = until(failed, "a failure on the Python worker", WAIT_S)[0]
    assert trace.startswith(f"This worker, {own}, does not know {theirs}; these do: {java.worker_id}.")
    audit = python.audit()
    assert {finding.evidence for finding in audit.of("class_unknown")} == {f"{own} does not know {theirs}"}
    assert not audit.of("plugin_versions_differ"), "the FileStream connectors of both have one version"
    with pytest.raises(RestError, match="Failed to find any class"):
        ours.client_of(java.url).create("c", {"connector.class": "Generator", "topic": "unused"})
