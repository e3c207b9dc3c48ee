"""Translates the security settings of a librdkafka client for kafka-python.

Decides how it is given a login and a certificate. It never chooses settings; secrets pass through it and are never
logged.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from typing import Any

from connectx.errors.kafka import ClientSettingError

_TRANSLATED = (
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.crl.location",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
)
_KAFKA_PYTHON_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")


def for_kafka_python(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of kafka-python that mean the same.

    Raises:
        ClientSettingError: kafka-python has no such login or TLS setting, or a certificate cannot be read.
    """
    protocol = str(config.get("security.protocol", "PLAINTEXT"))
    result: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL_"):
        mechanism = str(config.get("sasl.mechanism", "GSSAPI"))
        if mechanism not in _KAFKA_PYTHON_MECHANISMS:
            raise ClientSettingError(
                f"sasl.mechanism={mechanism} is not supported by the client that joins the worker group.",
                next_step=f"Use one of {', '.join(_KAFKA_PYTHON_MECHANISMS)}.",
            )
        result["sasl_mechanism"] = mechanism
        result["sasl_plain_username"] = config.get("sasl.username")
        result["sasl_plain_password"] = config.get("sasl.password")
        if "sasl.kerberos.service.name" in config:
            result["sasl_kerberos_service_name"] = config["sasl.kerberos.service.name"]
    if protocol.endswith("SSL"):
        result["ssl_context"] = _ssl_context(config)
    return result


def _ssl_context(config: Mapping[str, Any]) -> ssl.SSLContext:
    if unused := [key for key in config if key.startswith("ssl.") and key not in _TRANSLATED]:
        raise ClientSettingError(
            f"{unused[0]} is not supported by the client that joins the worker group.",
            next_step="Remove it if the clients need not keep to it.",
        )
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    try:
        if "ssl.ca.pem" in config or "ssl.ca.location" in config:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts only what is named
            context.load_verify_locations(cafile=config.get("ssl.ca.location"), cadata=config.get("ssl.ca.pem"))
        if "ssl.crl.location" in config:
            context.load_verify_locations(cafile=config["ssl.crl.location"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        _load_own_certificate(context, config)
        if "ssl.cipher.suites" in config:
            context.set_ciphers(config["ssl.cipher.suites"])
    except (OSError, ssl.SSLError) as error:
        raise ClientSettingError(
            f"A certificate or key of the ssl.* settings cannot be used: {error}.",
            next_step="Check the ssl.* settings; files must exist and be PEM.",
        ) from error
    if config.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if str(config.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_own_certificate(context: ssl.SSLContext, config: Mapping[str, Any]) -> None:
    password = config.get("ssl.key.password")
    if "ssl.certificate.location" in config:
        context.load_cert_chain(config["ssl.certificate.location"], config.get("ssl.key.location"), password)
    elif "ssl.certificate.pem" in config:  # Python's ssl reads this from files only
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(config["ssl.certificate.pem"] + "\n" + config.get("ssl.key.pem", ""))
            file.flush()
            context.load_cert_chain(file.name, password=password)
