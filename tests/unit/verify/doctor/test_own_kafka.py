"""Judgements about a Kafka of one's own: not there, not let in, hidden behind its addresses, too old, rights."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from connectx.errors.kafka import KafkaLoginError
from connectx.errors.plugins import ConfigError
from connectx.kafka.admin.client import ClusterView
from connectx.verify.doctor import own_kafka
from connectx.verify.doctor.own_kafka import KafkaProbe, judge_exactly_once, judge_group, judge_reach, judge_topics
from connectx.verify.doctor.report import Status

WHERE = "kafka:9092"


def probe(view: ClusterView | None = None, config: dict[str, str] | None = None, **more: Any) -> KafkaProbe:
    version = None if view is None else (4, 3)
    return KafkaProbe(WHERE, own_kafka.settings_of(WHERE, config or {}), view=view, **{"version": version, **more})


def seen(
    brokers: int = 3, rights: set[str] | None = None, topics: dict[str, set[str] | None] | None = None
) -> ClusterView:
    names = tuple(f"broker-{number}:9092" for number in range(brokers))
    allowed = {topic: None if may is None else frozenset(may) for topic, may in (topics or {}).items()}
    return ClusterView(names, None if rights is None else frozenset(rights), allowed)


def test_a_kafka_that_is_not_there_is_broken_with_the_reason_of_each_address() -> None:
    found = judge_reach(probe(unreachable={WHERE: "the name kafka is not known here"}))
    assert found.status is Status.BROKEN
    assert found.why == "kafka:9092: the name kafka is not known here."


def test_addresses_are_tried_one_by_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        good = f"127.0.0.1:{server.getsockname()[1]}"
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            dead = f"127.0.0.1:{other.getsockname()[1]}"
            found = own_kafka.unreachable_of([good, dead, "nowhere.invalid:1", "nonsense", f"PLAINTEXT://{good}"])
    assert set(found) == {dead, "nowhere.invalid:1", "nonsense"}
    assert found[dead] == "Connection refused"
    assert "not known" in found["nowhere.invalid:1"]
    assert found["nonsense"] == "is no host:port"


def test_a_login_that_is_refused_is_told_as_kafka_told_it() -> None:
    error = KafkaLoginError(WHERE, "Authentication failed: Invalid username or password")
    found = judge_reach(probe(error=error))
    assert found.status is Status.BROKEN
    assert "Invalid username or password" in found.why
    assert found.next_step == error.next_step


def test_addresses_that_brokers_announce_and_nobody_reaches_are_broken() -> None:
    found = judge_reach(probe(seen(1), hidden={"internal:9092": "the name internal is not known here"}))
    assert found.status is Status.BROKEN
    assert "advertised.listeners" in found.next_step


def test_an_old_kafka_is_broken_and_one_of_several_addresses_limits() -> None:
    assert judge_reach(probe(seen(), version=(2, 3))).status is Status.BROKEN
    assert judge_reach(probe(seen(), version=None)).status is Status.OK
    assert judge_reach(probe(seen(), unreachable={"b:9092": "Connection refused"})).status is Status.LIMITED
    assert judge_reach(probe(seen())).found == "Kafka 4.3 at kafka:9092, 3 brokers"


def test_more_replicas_than_brokers_are_told_with_the_settings_to_give() -> None:
    found = judge_topics(probe(seen(1)))
    assert found.status is Status.BROKEN
    assert '"config.storage.replication.factor": "1"' in found.next_step
    one = {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
    assert judge_topics(probe(seen(1), one)).status is Status.OK
    assert judge_topics(probe(seen(3))).status is Status.OK


def test_topics_that_may_not_be_created_or_used_are_told() -> None:
    assert judge_topics(probe(seen(rights={"DESCRIBE"}))).status is Status.LIMITED
    names = ("connectx-configs", "connectx-offsets", "connectx-statuses")
    assert judge_topics(probe(seen(topics=dict.fromkeys(names)))).status is Status.OK
    rights: dict[str, set[str] | None] = {name: {"READ", "WRITE", "DESCRIBE"} for name in names}
    assert judge_topics(probe(seen(topics=rights))).status is Status.OK
    found = judge_topics(probe(seen(topics={**rights, "connectx-offsets": {"READ", "DESCRIBE"}})))
    assert (found.status, found.why) == (Status.BROKEN, "Rights: connectx-offsets lacks WRITE.")


def test_a_group_that_others_use_is_told() -> None:
    assert judge_group(probe(seen())).status is Status.OK
    assert "group.id" in judge_group(probe(seen(), group_members=2)).next_step


def test_exactly_once_is_off_by_default_with_the_setting_that_enables_it() -> None:
    assert judge_exactly_once(probe(seen())).status is Status.OFF
    enabled = {"exactly.once.source.support": "enabled"}
    assert judge_exactly_once(probe(seen(), enabled)).status is Status.OK
    assert "transactional id" in judge_exactly_once(probe(seen(rights={"CREATE"}), enabled)).why


def test_settings_that_a_cluster_would_refuse_are_a_finding() -> None:
    with pytest.raises(ConfigError) as caught:
        own_kafka.settings_of(WHERE, {"session.timeout.ms": "soon"})
    found = own_kafka.settings_problem(caught.value)
    assert found.status is Status.BROKEN
    assert "session.timeout.ms" in found.why
