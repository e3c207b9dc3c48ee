"""Audits of live clusters: ours, the same seen from outside, and both together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

import connectx as cx
from connectx.rest.client import RestClient
from connectx.verify.audit.findings import Audit, Severity
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

SECRET = "hunter2-in-clear"


@pytest.fixture
def crowded(cluster: cx.Cluster, tmp_path: Path) -> Iterator[cx.Cluster]:
    """The shared cluster with connectors that get in each other's way; a failed task; all gone after the test."""
    create_topic(cluster.bootstrap_servers, "audited", 2)
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    file = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "audited"}
    out = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out.txt"), "topics": "audited"}
    with ExitStack() as endings:
        for name, config in (
            ("audit-in", {**file, "tasks.max": "2"}),
            ("audit-in-2", file),
            ("audit-out", {**out, "tasks.max": "3"}),
            ("audit-out-2", {**out, "errors.log.enabled": "true"}),
            ("audit-fails", {**out, "file": str(tmp_path / "missing" / "out.txt"), "sasl.password": SECRET}),
        ):
            endings.callback(cluster.create(name, config).delete)
        for name in ("audit-in", "audit-in-2", "audit-out", "audit-out-2"):
            cluster.wait(name, "RUNNING", WAIT_S)
        cluster.wait("audit-fails", "FAILED", WAIT_S)
        yield cluster


FOUND = {
    "same_source": "audit-in and audit-in-2",
    "same_target": "audit-out and audit-out-2",
    "failed_task": "audit-fails-0",
    "sink_tasks_above_partitions": "audit-out",
    "tasks_max_unused": "audit-in",
    "same_topic_written": "audit-in and audit-in-2",
    "key_misspelled": "audit-out-2",
}


def at_any_time(audit: Audit) -> list[str]:
    """Findings without how long a transaction was open by then."""
    return [re.sub(r"Open for .+? \(", "Open (", str(finding)) for finding in audit]


@pytest.mark.timeout(400)
def test_an_audit_finds_the_same_from_inside_and_from_outside(crowded: cx.Cluster) -> None:
    settings = {"transactional.id": "left-open", "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": crowded.bootstrap_servers, **settings})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("audited", b"never committed", partition=1)
    producer.flush(30)

    out = crowded["audit-out"].config["file"]
    until(lambda: Path(str(out)).read_text().count("\n") == 8, "each of two rows by two sources and two sinks", WAIT_S)
    twice = crowded.check(topic="audited", target=out, depth="keys", timeout=0)
    assert (twice.duplicated, twice.lost) == (4, 0)
    assert [(one.found, one.by_key) for one in twice.checked] == [(4, False), (8, True)]

    steps: list[tuple[str, int, int]] = []
    inside = crowded.audit(progress=lambda *step: steps.append(step))
    assert steps == [(f"Auditing {crowded.config.group_id}, steps", done, 4) for done in range(5)]
    config = {f"{role}.storage.topic": getattr(crowded.config, f"{role}_topic").name for role in ("config", "status")}
    url, servers = crowded.workers[0].url, crowded.bootstrap_servers
    with cx.attach(url, bootstrap_servers=servers, group_id=crowded.config.group_id, config=config) as attached:
        outside = attached.audit()
        together = cx.audit(crowded, attached)
    producer.abort_transaction(30)

    for audit in (inside, outside):
        seen = {code: [finding.subject for finding in audit.of(code)] for code in FOUND}
        assert {code: [FOUND[code]] for code in FOUND} == seen
        assert audit.worst is Severity.ERROR
        assert not audit.of("claimed_twice") + audit.of("old_generation") + audit.of("hanging_transaction")
        assert SECRET not in repr(audit) + audit._repr_html_() + audit.to_pandas().to_string()
    assert inside.unseen == ()
    assert any("own settings" in text for text in outside.unseen)
    assert at_any_time(together) == at_any_time(inside), "one cluster, given twice"


def test_a_worker_that_goes_on_although_the_group_has_left_it_out_is_found_and_lags(tmp_path: Path) -> None:
    with cx.Cluster(2, config={"session.timeout.ms": "1500", "scheduled.rebalance.max.delay.ms": "0"}) as cluster:
        create_topic(cluster.bootstrap_servers, "stalled")
        (tmp_path / "in.txt").write_text("one\n")
        config = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "stalled"}
        cluster.create("stalled-in", config).wait("RUNNING", WAIT_S)
        owner = until(lambda: [w for w in cluster.workers if "stalled-in-0" in w.tasks], "an owner", WAIT_S)[0]
        owner.stall()
        other = next(worker for worker in cluster.workers if worker.name != owner.name)
        until(lambda: "stalled-in-0" in other.tasks, "the take-over", WAIT_S)
        RestClient([other.url]).create("later", {**config, "file": str(tmp_path / "later.txt")})
        audit = cluster.audit()
        assert "stalled-in-0" in {finding.subject for finding in audit.of("claimed_twice")}
        (zombie,) = audit.of("old_generation")
        assert zombie.subject == owner.url.split("/")[2]
        assert [finding.subject for finding in audit.of("lagging_worker")] == [zombie.subject]
        owner.resume()
