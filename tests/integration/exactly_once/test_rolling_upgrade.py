"""`exactly.once.source.support` from disabled over preparing to enabled and back, worker by worker, under a flow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import connectx as cx
from connectx.errors.plugins import ConfigError
from connectx.model.events import EventKind
from tests.support.clusters import MakeCluster, config_records, events, owner_of
from tests.support.flows import Rows
from tests.support.profiles import EOS
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.rule("618.1.1", "618.1.2")

SUPPORT = "exactly.once.source.support"


@pytest.fixture
def old(make_cluster: MakeCluster) -> Iterator[cx.Cluster]:
    """Two workers of before KIP-618."""
    config = {**EOS, SUPPORT: "disabled", "scheduled.rebalance.max.delay.ms": "0"}
    with make_cluster(workers=2, config=config) as made:
        yield made


def move_all(cluster: cx.Cluster, support: str) -> list[str]:
    """Replace each worker by one with another setting, one after the other; the names of the new ones."""
    before = [worker for worker in cluster.workers if worker.state == "running"]
    made = []
    for worker in before:
        made.append(cluster.add_worker(WAIT_S, config={SUPPORT: support}).name)
        assert cluster.stop(worker.name)
    cluster.wait_stable(WAIT_S)
    return made


def test_a_rolling_upgrade_to_exactly_once_and_back_under_a_flow(old: cx.Cluster) -> None:
    rows = Rows(old, "upgraded")
    rows.start(tasks=1)

    def flows() -> int:
        """The last id that was committed, once some more rows came."""
        owner_of(old, f"{rows.name}-0")
        rows.wait_for_more(0, of=1)
        return rows.ids()[-1]

    flows()
    preparing = move_all(old, "preparing")
    flows()
    claims = until(lambda: events(old, EventKind.LEADERSHIP_CLAIMED), "a leader that writes in transactions")
    assert {event.worker for event in claims} <= set(preparing)
    assert not events(old, EventKind.TRANSACTION_COMMITTED), "and tasks do not yet"
    assert config_records(old, "tasks-fencing-") == []
    since = old.events.last_seq
    enabled = move_all(old, "enabled")
    first = flows()
    assert [value for _, value in config_records(old, "tasks-fencing-")] == [{"task-count": 1}]
    commits = events(old, EventKind.TRANSACTION_COMMITTED, since, connector=rows.name)
    assert {event.worker for event in commits} <= set(enabled)
    leader = old.leader
    assert leader is not None
    old.add_worker(WAIT_S, config={SUPPORT: "enabled"})
    old.kill(owner_of(old, f"{rows.name}-0").name)
    last = flows()
    move_all(old, "preparing")
    flows()
    since = old.events.last_seq
    move_all(old, "disabled")
    flows()
    assert owner_of(old, f"{rows.name}-0").name not in {
        event.worker for event in events(old, EventKind.TRANSACTION_COMMITTED, since)
    }
    ids = rows.ids()
    kept = [number for number in ids if first <= number <= last]
    assert kept == list(range(first, last + 1)), "nothing lost and nothing twice while exactly-once was enabled"
    assert sorted(set(ids)) == list(range(max(ids) + 1)), "and nothing lost at any time"
    rows.close()


def test_what_all_workers_of_a_group_must_share_is_no_setting_of_one(group: cx.Cluster) -> None:
    with pytest.raises(ConfigError, match=r"config\.storage\.topic must be the same in all workers of a group"):
        group.add_worker(config={"config.storage.topic": "another"})
