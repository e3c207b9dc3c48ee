"""Every client that speaks TLS from the first byte, before a server that cannot prove who it is.

The certificate is of an authority that the client does not trust, or of another name. Neither a login nor a request may
reach the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from connectx.connectors.http.client import HttpTarget
from connectx.connectors.http.config import HttpSettings
from connectx.connectors.http.requests import Request
from connectx.connectors.shared.storage import store_of
from connectx.data.registry.client import RegistryClient
from connectx.data.registry.keys import REGISTRY_CONFIG
from connectx.kafka.net import KafkaNet
from connectx.kafka.settings.client_keys import Layer, to_librdkafka
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TopicPartition
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.rest.client import RestClient
from connectx.rest.exchange import http_client
from tests.support.tls_servers import TlsServer, tls_server
from tests.support.waiting import until

OURS, STRANGER = trustme.CA(), trustme.CA()

Reach = Callable[[int, Path], None]


def http_sink(port: int, authority: Path) -> None:
    config = {
        "http.api.url": f"https://localhost:{port}/",
        "https.ssl.truststore.location": str(authority),
        "auth.type": "bearer",
        "bearer.token": "t0ken",
    }
    with HttpTarget(HttpSettings.of(config)) as target:
        target.send(Request("POST", f"https://localhost:{port}/", TopicPartition("t", 0), (0,), ("{}",)))


def oauth(port: int, authority: Path) -> None:
    login = {
        "auth.type": "oauth2",
        "oauth2.token.url": f"https://localhost:{port}/token",
        "oauth2.client.id": "me",
        "oauth2.client.secret": "t0ken",
    }
    config = {"http.api.url": "http://localhost:1/", "https.ssl.truststore.location": str(authority), **login}
    with HttpTarget(HttpSettings.of(config)) as target:
        target.send(Request("POST", "http://localhost:1/", TopicPartition("t", 0), (0,), ("{}",)))


def registry(port: int, authority: Path) -> None:
    given = {
        "schema.registry.url": f"https://me:t0ken@localhost:{port}",
        "converter.type": "value",
        "schema.registry.ssl.truststore.location": str(authority),
    }
    RegistryClient(REGISTRY_CONFIG.parse(given), "AvroConverter", "value").latest("orders-value")


def object_store(port: int, authority: Path) -> None:
    import obstore

    given = {
        "aws_endpoint": f"https://localhost:{port}",
        "aws_access_key_id": "me",
        "aws_secret_access_key": "t0ken",
        "aws_region": "eu-west-1",
        "root_certificate": authority.read_text(),
        "timeout": "1s",
    }
    obstore.head(store_of("s3://bucket/lake", given), "x")


def worker(port: int, authority: Path) -> None:
    trust = {"listeners.https.ssl.truststore.type": "PEM", "listeners.https.ssl.truststore.location": str(authority)}
    own = {"listeners": "https://localhost:1", "bootstrap.servers": "localhost:1"}
    config = WorkerConfig.parse({**embedded_config({}), **own, **trust})
    RestClient([f"https://localhost:{port}"], retry_s=0, http=http_client(config)).root()


def _kafka(port: int, authority: Path) -> dict[str, str]:
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority)}
    plain = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="t0ken";'
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": plain}
    return {"bootstrap.servers": f"localhost:{port}", **trust, **login}


def librdkafka(port: int, authority: Path) -> None:
    from confluent_kafka.admin import AdminClient

    AdminClient({**to_librdkafka([Layer("", _kafka(port, authority))], pytest.fail)}).list_topics(timeout=1)


def kafka_python(port: int, authority: Path) -> None:
    config = WorkerConfig.parse({**embedded_config({}), **_kafka(port, authority)})
    net = KafkaNet(ClientConfigs(config, "w").kafka_python("w"))
    net.start()
    try:
        net.run(net.bootstrap, time.monotonic() + 1)
    finally:
        net.close()


CLIENTS: list[Reach] = [http_sink, oauth, registry, object_store, worker, librdkafka, kafka_python]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "ours.pem"
    OURS.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="module", params=["another authority", "another name"])
def impostor(request: pytest.FixtureRequest) -> Iterator[TlsServer]:
    ca, name = (STRANGER, "localhost") if request.param == "another authority" else (OURS, "other.example")
    with tls_server(ca.issue_cert(name)) as server:
        yield server


@pytest.mark.parametrize("reach", CLIENTS)
def test_an_impostor_hears_nothing(reach: Reach, impostor: TlsServer, authority: Path) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the errors of seven libraries
        reach(impostor.port, authority)
    assert bytes(impostor.received) == b""
    assert "t0ken" not in str(raised.value)


@pytest.mark.parametrize("reach", CLIENTS)
def test_the_real_server_hears_each_client(reach: Reach, authority: Path) -> None:
    with tls_server(OURS.issue_cert("localhost")) as server:
        with suppress(Exception):  # it never answers
            reach(server.port, authority)
        until(lambda: server.received, "a request", 10)
