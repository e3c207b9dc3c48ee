"""A cluster of ours, seen from outside as if it ran elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

import connectx as cx
from connectx.errors.clusters import AttachError
from connectx.model.events import EventKind
from tests.support.flows import Lines
from tests.support.profiles import QUICK
from tests.support.waiting import WAIT_S, until


def test_a_cluster_of_ours_is_seen_from_outside_and_a_dead_workers_work_is_lost(
    make_lines: Callable[..., Lines], spark_provider: object
) -> None:
    with cx.Cluster(2, config=QUICK) as ours:
        lines = make_lines(ours)
        lines.start()
        owner = lines.owner()
        owner_id = owner.url.split("/")[2]
        other = next(worker for worker in ours.workers if worker.name != owner.name)
        config = {name: topic.name for name, topic in (
            ("config.storage.topic", ours.config.config_topic), ("status.storage.topic", ours.config.status_topic)
        )}  # fmt: skip
        with cx.attach(other.url, bootstrap_servers=ours.bootstrap_servers, config=config, poll_s=0.2) as cluster:
            assert cluster.group_id == ours.config.group_id
            assert {worker.name for worker in cluster.workers} == {w.url.split("/")[2] for w in ours.workers}
            assert lines.task in cluster.workers[owner_id].tasks
            with closing(cluster.movement_reader()) as movements:
                lines.append(7)
                until(lambda: movements.read_all()[lines.name].topics, "a topic that was used", WAIT_S)
                lines.append(7)
                until(lambda: movements.read_all()[lines.name].moved, "records to be seen moving", WAIT_S)
            ours.kill(owner.name)
            until(lambda: owner_id not in cluster.workers, "the death to be seen", WAIT_S)
            stopped = [event for event in cluster.events if event.kind is EventKind.WORKER_STOPPED]
            assert [(event.worker, "killed" in event.cause) for event in stopped] == [(owner_id, True)]
            cluster.wait(lines.name, "RUNNING", WAIT_S)
            until(lambda: cluster[lines.name].tasks[0].worker == other.url.split("/")[2], "the take-over", WAIT_S)
        with pytest.raises(AttachError, match="nobody"):
            cx.attach(other.url, bootstrap_servers=ours.bootstrap_servers, group_id="nobody")
