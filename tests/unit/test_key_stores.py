"""Stores made by OpenSSL and keytool, read as PEM."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest
import trustme

from connectx.errors.base import MissingExtraError
from connectx.errors.kafka import ClientSettingError
from connectx.errors.rest import RestTlsError
from connectx.kafka.settings.client_keys import Layer, to_librdkafka
from connectx.kafka.settings.security import for_kafka_python
from connectx.key_stores import read_pkcs12
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.rest.tls import server_context
from tests.support.stores import java_trust_store, pkcs12_key_store

PASSWORD = "hush, hush"


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, str]:
    """A key store by OpenSSL and a trust store by keytool; the stated type of one is JKS, as Java allows."""
    authority = trustme.CA()
    return {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": pkcs12_key_store(tmp_path / "me.p12", authority.issue_cert("me"), PASSWORD),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "JKS",
        "ssl.truststore.location": java_trust_store(tmp_path / "trusted.jks", authority, PASSWORD),
        "ssl.truststore.password": PASSWORD,
    }


def translated(settings: dict[str, str]) -> dict[str, str]:
    return to_librdkafka([Layer("", settings)], pytest.fail)


def test_every_client_gets_the_certificates_and_a_key_that_stays_encrypted(stores: dict[str, str]) -> None:
    config = translated(stores)
    context: ssl.SSLContext = for_kafka_python(config)["ssl_context"]
    assert len(context.get_ca_certs()) == 1
    assert config["ssl.key.password"] == PASSWORD
    assert config["ssl.key.pem"].startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert config["ssl.certificate.pem"].count("BEGIN CERTIFICATE") >= 1
    assert config["ssl.ca.pem"].count("BEGIN CERTIFICATE") == 1


def test_a_listener_of_rest_has_the_key_and_trusts_the_authority(stores: dict[str, str]) -> None:
    settings = {f"listeners.https.{name}": value for name, value in stores.items() if name.startswith("ssl.")}
    settings |= {"bootstrap.servers": "x:1", "listeners.https.ssl.client.auth": "required"}
    context = server_context(WorkerConfig.parse(embedded_config(settings)))
    assert (context.verify_mode, len(context.get_ca_certs())) == (ssl.CERT_REQUIRED, 1)


@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_a_wrong_password_is_a_sentence_that_does_not_show_it(stores: dict[str, str], store: str) -> None:
    stores[f"ssl.{store}.password"] = "guessed"
    with pytest.raises(ClientSettingError) as raised:
        translated(stores)
    assert f"ssl.{store}.location={stores[f'ssl.{store}.location']} cannot be used" in str(raised.value)
    assert "its password is another one" in str(raised.value)
    assert f"ssl.{store}.password" in raised.value.next_step
    assert "guessed" not in f"{raised.value}{raised.value.next_step}"
    settings = {f"listeners.https.{name}": value for name, value in stores.items() if name.startswith("ssl.")}
    settings |= {"bootstrap.servers": "x:1", "listeners.https.ssl.client.auth": "required"}
    with pytest.raises(RestTlsError, match="its password is another one"):
        server_context(WorkerConfig.parse(embedded_config(settings)))


def test_a_store_in_javas_own_format_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = java_trust_store(tmp_path / "old.jks", trustme.CA(), PASSWORD, "JKS")
    with pytest.raises(ClientSettingError, match="keytool -importkeystore -deststoretype PKCS12"):
        translated({"ssl.truststore.location": store, "ssl.truststore.password": PASSWORD})


def test_a_file_without_a_store_and_no_file_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "text.p12").write_text("no store")
    with pytest.raises(ClientSettingError, match="no PKCS#12 store"):
        translated({"ssl.keystore.location": str(tmp_path / "text.p12")})
    with pytest.raises(ClientSettingError, match="No such file"):
        translated({"ssl.keystore.location": str(tmp_path / "none.p12")})


def test_without_the_package_the_error_has_the_command(stores: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtraError, match=r"connectx\[tls\]"):
        read_pkcs12(stores["ssl.keystore.location"], PASSWORD)
