"""A Kafka of one's own that takes only TLS and SCRAM logins: every client gets in, Spark's too."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import connectx as cx
from connectx.errors.base import ConnectxError
from connectx.kafka.broker import node
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.verify.audit.findings import Audit
from tests.support.profiles import FILE_PROVIDER, STRINGS
from tests.support.stores import java_trust_store, pkcs12_key_store
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = "correct horse; battery"
STORE_PASSWORD = "staple"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass
class Secure:
    """A broker: where it takes only SASL_SSL with client certificates, where anybody gets in, and stores of clients."""

    servers: str
    direct: str
    authority: Path
    own: Path
    pkcs12: dict[str, str]

    def config(
        self, password: str = PASSWORD, authority: Path | None = None, stores: dict[str, str] | None = None
    ) -> dict[str, str]:
        """Worker settings in Java's words; the producers, consumers and admins of connectors have the same."""
        pem = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.own),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority or self.authority),
        }
        security = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{MODULE} required username="alice" password="{password}";',
            **(stores or pem),
        }
        layers = ("", "producer.", "consumer.", "admin.")
        return {f"{layer}{key}": value for layer in layers for key, value in security.items()}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    own = _pem_store(folder / "own.pem", authority.issue_cert("me"))
    pkcs12 = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": pkcs12_key_store(folder / "me.p12", authority.issue_cert("me"), STORE_PASSWORD),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": java_trust_store(folder / "trusted.p12", authority, STORE_PASSWORD),
        "ssl.truststore.password": STORE_PASSWORD,
    }
    broker_store = _pem_store(folder / "broker.pem", authority.issue_cert("127.0.0.1", "localhost"))
    authority.cert_pem.write_to_path(folder / "authority.pem")
    direct, safe, controller = node.free_ports(3)
    listeners = f"DIRECT://127.0.0.1:{direct},SECURE://127.0.0.1:{safe}"
    settings = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
        "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{MODULE} required;",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(broker_store),
        "listener.name.secure.ssl.client.auth": "required",
        "listener.name.secure.ssl.truststore.type": "PEM",
        "listener.name.secure.ssl.truststore.location": str(folder / "authority.pem"),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "600000",  # what is open stays open
    }
    with EmbeddedKafka(port=direct, gate=False, settings=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        alice = UserScramCredentialUpsertion("alice", info, PASSWORD.encode())
        admin.alter_user_scram_credentials([alice])["alice"].result(30)
        admin.create_topics([NewTopic("lines", 2)])["lines"].result(30)
        yield Secure(f"127.0.0.1:{safe}", broker.bootstrap_servers, folder / "authority.pem", own, pkcs12)


def _pem_store(path: Path, certificate: trustme.LeafCert) -> Path:
    """Key and certificates in one file, the key as Java's PEM stores want it."""
    certificate.private_key_pem.write_to_path(path)
    pkcs8 = ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", str(path)]
    key = subprocess.run(pkcs8, check=True, capture_output=True, text=True).stdout
    path.write_text(key + "".join(blob.bytes().decode() for blob in certificate.cert_chain_pems))
    return path


def test_workers_tasks_and_spark_reach_a_kafka_that_takes_only_tls_and_a_login(
    secure: Secure, spark: SparkSession, tmp_path: Path
) -> None:
    lines, out = tmp_path / "in.txt", tmp_path / "out.txt"
    lines.write_text("".join(f"line {number}\n" for number in range(1000)))
    (tmp_path / "secrets.properties").write_text(f"kafka={PASSWORD}\n")
    login = secure.config(password=f"${{file:{tmp_path}/secrets.properties:kafka}}", stores=secure.pkcs12)
    config = {**login, **FILE_PROVIDER, "value.converter": STRINGS, "offset.flush.interval.ms": "500",
              "exactly.once.source.support": "enabled", "offset.storage.replication.factor": "1",
              "config.storage.replication.factor": "1", "status.storage.replication.factor": "1"}  # fmt: skip
    with cx.Cluster(2, bootstrap_servers=secure.servers, config=config, spark=spark) as cluster:
        cluster.create("in", {"connector.class": "FileStreamSource", "file": str(lines), "topic": "lines"})
        cluster.wait("in", "RUNNING", timeout=90)
        until(cluster["in"].offsets.get, "all lines in the topic", 90)
        sink = {"connector.class": "FileStreamSink", "file": str(out), "topics": "lines"}
        cluster.create("out", sink)
        cluster.wait("out", "RUNNING", timeout=90)
        verdict = cluster.check(timeout=90)
        verdict.require_valid()
        assert sorted(out.read_text().splitlines()) == sorted(lines.read_text().splitlines())
        seen = f"{cluster!r}{cluster._repr_html_()}{cluster.config!r}{cluster.events.to_pandas().to_string()}{verdict}"
        assert PASSWORD not in seen
        assert STORE_PASSWORD not in seen


def test_a_cluster_there_is_attached_and_audited_with_a_login_that_nobody_sees(
    secure: Secure, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    storage = {f"{store}.storage.topic": f"seen-{store}" for store in ("config", "offset", "status")}
    once = {f"{store}.storage.replication.factor": "1" for store in ("config", "offset", "status")}
    config = {**secure.config(), **storage, **once, "group.id": "seen", "value.converter": STRINGS}
    (tmp_path / "in.txt").write_text("one\n")
    with cx.Cluster(1, bootstrap_servers=secure.servers, config=config, spark=spark) as cluster:
        file = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "lines"}
        cluster.create("in", file).wait("RUNNING", 90)
        ours = cluster.workers[0]
        with cx.attach(ours.url, bootstrap_servers=secure.servers, config=config) as seen:
            assert seen.group_id == "seen"
            assert [(worker.name, worker.is_leader) for worker in seen.workers] == [(ours.url.split("/")[2], True)]
            until(lambda: seen.workers[0].tasks == ["in-0"], "the task in the group", 90)
            owner = Producer(
                {"bootstrap.servers": secure.direct, "transactional.id": "left", "transaction.timeout.ms": 1000}
            )
            owner.init_transactions(30)
            owner.begin_transaction()
            owner.produce("lines", b"never committed")
            owner.flush(30)

            def found() -> Audit | None:
                now = seen.audit()
                return now if now.of("open_transaction") else None

            audit = until(found, "the time-out to pass", 30)
            assert [finding.subject for finding in audit.of("open_transaction")] == ["left"]
            assert audit.unseen == ("the workers' own settings: REST does not show them (give them with config=)",)
            forms = [f"{one!r}{one._repr_html_()}{one.to_pandas().to_string()}" for one in (audit, seen.events)]
            recorded = f"{seen!r}{seen._repr_html_()}{seen.config!r}{seen.overview()}{seen.blind_spots}"
        assert PASSWORD not in "".join([recorded, *forms, caplog.text])
        assert "alice" in seen.config.given["sasl.jaas.config"], "it is there, and not shown"


def test_a_wrong_password_is_refused_in_a_sentence_without_it(secure: Secure, spark: SparkSession) -> None:
    with pytest.raises(ConnectxError) as raised:
        cx.Cluster(1, bootstrap_servers=secure.servers, config=secure.config(password="guessed"), spark=spark)
    assert "sasl" in str(raised.value)
    assert "guessed" not in str(raised.value)


def test_a_broker_that_nobody_known_vouches_for_is_refused_in_a_sentence(
    secure: Secure, spark: SparkSession, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "stranger.pem")
    config = secure.config(authority=tmp_path / "stranger.pem")
    with pytest.raises(ConnectxError) as raised:
        cx.Cluster(1, bootstrap_servers=secure.servers, config=config, spark=spark)
    assert "ssl" in str(raised.value).lower()
