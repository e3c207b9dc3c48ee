from __future__ import annotations

import ssl
from pathlib import Path

import certifi
import pytest

from connectx.errors.kafka import ClientSettingError
from connectx.kafka.settings.security import for_kafka_python


def test_without_security_only_the_protocol_is_said() -> None:
    assert for_kafka_python({}) == {"security_protocol": "PLAINTEXT"}


def test_a_password_login_reaches_kafka_python() -> None:
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a"}
    assert for_kafka_python(config | {"sasl.password": "b"}) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "a",
        "sasl_plain_password": "b",
    }


def test_a_login_that_kafka_python_lacks_is_an_error_with_the_choices() -> None:
    config = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ClientSettingError) as raised:
        for_kafka_python(config)
    assert "SCRAM-SHA-512" in raised.value.next_step


def test_only_the_named_authorities_are_trusted_and_the_host_name_is_checked() -> None:
    ca = certifi.where()
    context = for_kafka_python({"security.protocol": "SSL", "ssl.ca.location": ca})["ssl_context"]
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.get_ca_certs()


def test_checks_can_be_switched_off_one_by_one() -> None:
    no_host = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"}
    context = for_kafka_python(no_host)["ssl_context"]
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)
    context = for_kafka_python({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"})[
        "ssl_context"
    ]
    assert context.verify_mode is ssl.CERT_NONE


def test_a_certificate_file_that_cannot_be_read_is_a_setting_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    for key in ("ssl.ca.location", "ssl.certificate.location"):
        with pytest.raises(ClientSettingError):
            for_kafka_python({"security.protocol": "SSL", key: missing})


@pytest.mark.parametrize("key", ["ssl.curves.list", "ssl.sigalgs.list", "ssl.ca.certificate.stores", "ssl.providers"])
def test_a_setting_of_librdkafka_that_this_client_lacks_is_refused(key: str) -> None:
    with pytest.raises(ClientSettingError, match=key):
        for_kafka_python({"security.protocol": "SSL", key: "x"})
