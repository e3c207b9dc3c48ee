"""The fixture itself: what answers is Kafka Connect, of the Kafka version that we embed."""

from __future__ import annotations

import httpx

from connectx.jvm import jars
from tests.support.java_worker import FILE_SINK, FILE_SOURCE, JavaWorker


def test_the_java_worker_is_kafka_connect_of_the_embedded_version(java_worker: JavaWorker) -> None:
    kafka = {jar.revision for jar in jars.locked(jars.KAFKA) if jar.organisation == "org.apache.kafka"}
    connect = {jar.revision for jar in jars.locked(jars.KAFKA_CONNECT) if jar.organisation == "org.apache.kafka"}
    assert connect == kafka == {httpx.get(java_worker.url).json()["version"]}


def test_the_java_worker_has_the_connectors_that_we_have_too(java_worker: JavaWorker) -> None:
    plugins = {plugin["class"] for plugin in httpx.get(f"{java_worker.url}/connector-plugins").json()}
    assert {FILE_SOURCE, FILE_SINK} <= plugins
