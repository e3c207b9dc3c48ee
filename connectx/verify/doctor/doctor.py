"""`cx.doctor()`: probes machine, notebook, Spark and Kafka, and reports what works and the next step.

It tries instead of assuming, starts nothing that stays, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from connectx.errors.plugins import ConfigError, ConfigProviderError
from connectx.model.worker_config import SPARK
from connectx.verify.doctor import java_plugins, machine, notebook, own_kafka, spark_session
from connectx.verify.doctor.report import Checkup, Finding, Status
from connectx.verify.doctor.spark_session import SparkProbe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def doctor(
    *,
    bootstrap_servers: str | None = None,
    spark: SparkSession | Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Checkup:
    """What works here, what is off and why, and what to type next.

    Give it what you would give `cx.Cluster`: it then reports whether that cluster can run. Takes a second or two; some
    seconds more while jars are not cached, about 10 s when a Kafka does not answer, and a minute for each question that
    a Spark session does not answer.

    Args:
        bootstrap_servers: your own Kafka; by default the embedded one is meant.
        spark: your own session, or settings of one; by default the active session of this process is inspected.
        config: settings of workers, such as `security.protocol` or `spark.master`.
    """
    given = dict(config or {})
    servers = bootstrap_servers or given.get("bootstrap.servers")
    with ThreadPoolExecutor(1, thread_name_prefix="connectx-doctor") as pool:
        asked = None if servers is None else pool.submit(_own_kafka, str(servers), given)
        settings = {key: value for key, value in given.items() if key.startswith(SPARK)}
        probe = spark_session.probe_session(spark or settings or None)
        findings = _here(probe, given, embedded=servers is None)
        kafka = [] if asked is None else asked.result()
    return judged([*findings, *kafka], probe, embedded=servers is None)


def judged(findings: list[Finding], probe: SparkProbe, *, embedded: bool) -> Checkup:
    """The conclusions from the findings; `embedded`: no address of a Kafka was given."""
    by_name = {found.name: found for found in findings}
    exactly_once = by_name.pop("Exactly-once sources", None)
    abilities = [
        _cluster(by_name, embedded=embedded),
        exactly_once or Finding("Exactly-once sources", *_exactly_once(embedded=embedded)),
        spark_session.judge_tasks(probe, _missing(by_name["Java"])),
        spark_session.judge_processes(probe),
        _faults(embedded=embedded),
        by_name.pop("Live panel", None) or notebook.panel(),
    ]
    return Checkup(tuple(by_name.values()), tuple(abilities))


def _here(probe: SparkProbe, config: Mapping[str, Any], *, embedded: bool) -> list[Finding]:
    local = probe.kind == "none" and probe.version is not None
    java, found = machine.java(needed=embedded or local)
    return [
        machine.python(),
        found,
        machine.kafka_jars(java, needed=embedded),
        java_plugins.java_plugins(config, java),
        *machine.disks(),
        machine.memory(starts_all=embedded and local),
        machine.loopback(),
        spark_session.judge_session(probe),
        notebook.session(),
        notebook.packages(),
        machine.postgres(),
    ]


def _own_kafka(servers: str, config: Mapping[str, Any]) -> list[Finding]:
    try:
        worker = own_kafka.settings_of(servers, config)
    except (ConfigError, ConfigProviderError) as error:
        return [own_kafka.settings_problem(error)]
    return own_kafka.judgements(own_kafka.probe_kafka(worker))


def _missing(found: Finding) -> Finding | None:
    return found if found.status is Status.BROKEN else None


def _cluster(by_name: Mapping[str, Finding], *, embedded: bool) -> Finding:
    name = "A cluster with its own Kafka" if embedded else "A cluster on your Kafka"
    call = "cx.Cluster(workers=3)" if embedded else "cx.Cluster(bootstrap_servers=...)"
    broken = [found for found in by_name.values() if found.status is Status.BROKEN]
    if broken:
        why = f"See {', '.join(found.name for found in broken)}."
        return Finding(name, Status.BROKEN, call, why, broken[0].next_step)
    return Finding(name, Status.OK, call)


def _exactly_once(*, embedded: bool) -> tuple[Status, str, str]:
    if embedded:
        return Status.OK, "on by default with the embedded Kafka", ""
    return Status.UNKNOWN, "", "Kafka could not be asked."


def _faults(*, embedded: bool) -> Finding:
    name = "Cutting workers off"
    if embedded:
        return Finding(name, Status.OK, "partition, kill_broker and a pause of all connections, by the gate")
    why = (
        "With your own Kafka there is no gate: partition and kill_broker are off; clients of a paused thread still run."
    )
    next_step = 'stop, kill and stall work; isolation="process" makes pause exact.'
    return Finding(name, Status.LIMITED, "stop, kill, stall", why, next_step)
