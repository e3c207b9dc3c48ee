"""Probes of a Kafka that the user named: addresses, login, version, permissions, and what a cluster needs of it.

It only reads: no topic, group or producer is created. Addresses are tried one by one, because a client only reports a
timeout. Then Kafka's own clients connect with the settings that a worker would use.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any, Final

from kafka.errors import KafkaError

from connectx.errors.base import ConnectxError
from connectx.errors.plugins import ConfigError, ConfigProviderError
from connectx.kafka.admin.client import Admin, ClusterView
from connectx.kafka.admin.topics import describe_group
from connectx.kafka.net import KafkaNet
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.worker_config import WorkerConfig, own_kafka_config
from connectx.plugins.registry import worker_config
from connectx.values import Value
from connectx.verify.doctor.report import Finding, Status

CONNECT_S: Final = 2.0
ASK_S: Final = 10.0
_OLDEST: Final = (2, 5)
_WRITES: Final = ("READ", "WRITE", "DESCRIBE")


class KafkaProbe(Value):
    """What was found out. Addresses are `host:port`; a problem is a sentence.

    Attributes:
        bootstrap_servers: where it is, as given.
        unreachable: addresses given that no connection reached, with the reason.
        error: why Kafka's client got no answer; None when it did.
        view: Kafka's own description.
        version: of the brokers; None when it is unknown.
        hidden: brokers, as Kafka announces them, that no connection reached, with the reason.
        group_members: members of the worker group now.
        config: the worker's settings.
    """

    bootstrap_servers: str
    config: WorkerConfig
    unreachable: Mapping[str, str] = field(default_factory=dict)
    error: ConnectxError | None = None
    view: ClusterView | None = None
    version: tuple[int, ...] | None = None
    hidden: Mapping[str, str] = field(default_factory=dict)
    group_members: int = 0


def settings_of(bootstrap_servers: str, config: Mapping[str, Any]) -> WorkerConfig:
    """Settings of a worker on this Kafka; raises ConfigError or ConfigProviderError as a cluster would."""
    return worker_config({**own_kafka_config(config), "bootstrap.servers": bootstrap_servers})


def probe_kafka(worker: WorkerConfig) -> KafkaProbe:
    """Ask this Kafka; takes about 10 s when it does not answer."""
    servers = worker.bootstrap_servers
    unreachable = unreachable_of(servers.split(","))
    if len(unreachable) == len(servers.split(",")):
        return KafkaProbe(servers, worker, unreachable)
    clients = ClientConfigs(worker, "doctor")
    try:
        admin = Admin(clients.admin())
        try:
            topics = (worker.config_topic, worker.offset_topic, worker.status_topic)
            view = admin.cluster_view([topic.name for topic in topics], ASK_S)
        finally:
            admin.close()
        hidden = unreachable_of(view.brokers)
        version = None if hidden else _version(clients)
        members = 0 if hidden else len(describe_group(clients, worker.group_id).members)
    except ConnectxError as error:
        return KafkaProbe(servers, worker, unreachable, error)
    return KafkaProbe(servers, worker, unreachable, None, view, version, hidden, members)


def _version(clients: ClientConfigs) -> tuple[int, ...] | None:
    net = KafkaNet(clients.kafka_python("doctor"))
    net.start()
    try:
        net.run(net.any_node, time.monotonic() + ASK_S)
        return net.broker_version
    except KafkaError:
        return None
    finally:
        net.close()


def unreachable_of(addresses: list[str] | tuple[str, ...]) -> dict[str, str]:
    """Those that no TCP connection reaches, side by side, with the reason."""
    with ThreadPoolExecutor(max(1, len(addresses)), thread_name_prefix="connectx-doctor") as pool:
        reasons = zip(addresses, pool.map(_why_unreachable, addresses), strict=True)
    return {address.strip(): reason for address, reason in reasons if reason}


def _why_unreachable(address: str) -> str:
    host, _, port = address.strip().rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except ValueError:
        return "is no host:port"
    except socket.gaierror:
        return f"the name {host} is not known here"
    except TimeoutError:
        return f"no answer within {CONNECT_S:g} s; a firewall may be in between"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def judge_reach(probe: KafkaProbe) -> Finding:
    """Whether a client gets an answer, and from what version."""
    name = "Your Kafka"
    if probe.error is None and probe.view is None:
        why = "; ".join(f"{address}: {reason}" for address, reason in probe.unreachable.items())
        found = f"{probe.bootstrap_servers} cannot be reached"
        return Finding(name, Status.BROKEN, found, f"{why}.", "Correct bootstrap_servers=, or start it.")
    if probe.error is not None:
        found = f"{probe.bootstrap_servers} does not respond"
        return Finding(name, Status.BROKEN, found, probe.error.message, probe.error.next_step)
    assert probe.view is not None
    version = _shown(probe.version)
    found = f"Kafka {version} at {probe.bootstrap_servers}, {_count(len(probe.view.brokers), 'broker')}"
    if probe.hidden:
        why = "It announces addresses that cannot be reached from here: "
        why += "; ".join(f"{address}: {reason}" for address, reason in probe.hidden.items()) + "."
        return Finding(name, Status.BROKEN, found, why, "Correct advertised.listeners of the brokers, or the network.")
    if probe.version is not None and probe.version < _OLDEST:
        why = f"connectx needs Kafka {_shown(_OLDEST)} or later."
        return Finding(name, Status.BROKEN, found, why, "Update the brokers.")
    if probe.unreachable:
        why = "Not reached: " + "; ".join(f"{a}: {reason}" for a, reason in probe.unreachable.items()) + "."
        return Finding(name, Status.LIMITED, found, why, "Correct bootstrap_servers= if this is not intended.")
    return Finding(name, Status.OK, found)


def judge_topics(probe: KafkaProbe) -> Finding:
    """Whether the internal topics are there or can be made."""
    view, worker = probe.view, probe.config
    assert view is not None
    storages = {"config": worker.config_topic, "offset": worker.offset_topic, "status": worker.status_topic}
    missing = {kind: topic for kind, topic in storages.items() if topic.name not in view.topics}
    if not missing:
        return _judge_rights(view)
    brokers = len(view.brokers)
    found = "to be created: " + ", ".join(topic.name for topic in missing.values())
    if greedy := [kind for kind, topic in missing.items() if topic.replication_factor > brokers]:
        replicas = missing[greedy[0]].replication_factor
        why = f"They need {replicas} replicas, but there is {_count(brokers, 'broker')}."
        keys = ", ".join(f'"{kind}.storage.replication.factor": "{brokers}"' for kind in greedy)
        return Finding("Internal topics", Status.BROKEN, found, why, f"config={{{keys}}}")
    if view.rights is not None and not {"CREATE", "ALL"} & view.rights:
        why = "This login may not create topics in general; a prefix may still be allowed to it."
        next_step = "Ask an administrator to create them with cleanup.policy=compact, or to grant CREATE."
        return Finding("Internal topics", Status.LIMITED, found, why, next_step)
    return Finding("Internal topics", Status.OK, found)


def _judge_rights(view: ClusterView) -> Finding:
    found = f"there: {', '.join(view.topics)}"
    lacking = {
        topic: [right for right in _WRITES if right not in rights and "ALL" not in rights]
        for topic, rights in view.topics.items()
        if rights is not None
    }
    if missing := "; ".join(f"{topic} lacks {', '.join(rights)}" for topic, rights in lacking.items() if rights):
        next_step = "Ask an administrator to grant these ACLs."
        return Finding("Internal topics", Status.BROKEN, found, f"Rights: {missing}.", next_step)
    return Finding("Internal topics", Status.OK, found)


def judge_group(probe: KafkaProbe) -> Finding:
    """Whether the worker group is free."""
    group = probe.config.group_id
    if probe.group_members:
        found = f"{group} has {_count(probe.group_members, 'member')}"
        why = "Another cluster uses this group."
        next_step = 'Choose another one, config={"group.id": "mine"}, or join it: cx.Cluster(join=True, ...).'
        return Finding("Worker group", Status.LIMITED, found, why, next_step)
    return Finding("Worker group", Status.OK, f"{group} is free")


def judge_exactly_once(probe: KafkaProbe) -> Finding:
    """Whether sources can write exactly once there."""
    name = "Exactly-once sources"
    assert probe.view is not None
    if probe.config.exactly_once_source_enabled:
        why = ""
        if probe.view.rights is not None:
            why = "There is access control: a task's start needs WRITE and DESCRIBE on its transactional id."
        return Finding(name, Status.OK, "exactly.once.source.support=enabled", why)
    why = "With your own Kafka, Kafka Connect's defaults are in force: exactly.once.source.support is disabled."
    return Finding(name, Status.OFF, "disabled", why, 'config={"exactly.once.source.support": "enabled"}')


def judgements(probe: KafkaProbe) -> list[Finding]:
    reach = judge_reach(probe)
    if probe.view is None or probe.hidden:
        return [reach]
    return [reach, judge_topics(probe), judge_group(probe), judge_exactly_once(probe)]


def settings_problem(error: ConfigError | ConfigProviderError) -> Finding:
    """Worker settings that a cluster would refuse."""
    next_step = error.next_step or "Correct config=."
    return Finding("Worker settings", Status.BROKEN, "refused", "; ".join(error.message.splitlines()), next_step)


def _shown(version: tuple[int, ...] | None) -> str:
    return "of an unknown version" if version is None else ".".join(map(str, version[:2]))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
