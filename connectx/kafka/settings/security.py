"""Translates the security settings of a librdkafka client for kafka-python and Java.

Decides how each of them is given a login and a certificate. Java's are for Spark's `kafka.` options. It never chooses
settings; secrets pass through it and are never logged.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from connectx.errors.kafka import ClientSettingError

_KAFKA_PYTHON_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"


def for_kafka_python(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of kafka-python that mean the same.

    Raises:
        ClientSettingError: kafka-python has no such login, or a certificate cannot be read.
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


def for_java(config: Mapping[str, Any]) -> dict[str, str]:
    """Settings of Kafka's Java client that mean the same.

    Raises:
        ClientSettingError: a certificate cannot be read, or Java has no such login.
    """
    protocol = str(config.get("security.protocol", "PLAINTEXT"))
    result = {"security.protocol": protocol}
    if protocol.startswith("SASL_"):
        result |= _java_login(config)
    if protocol.endswith("SSL"):
        result |= _java_certificates(config)
    return result


def _java_login(config: Mapping[str, Any]) -> dict[str, str]:
    mechanism = str(config.get("sasl.mechanism", "GSSAPI"))
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
        module = _PLAIN_MODULE if mechanism == "PLAIN" else _SCRAM_MODULE
        options = {"username": config.get("sasl.username", ""), "password": config.get("sasl.password", "")}
    elif mechanism == "GSSAPI":
        module = _KERBEROS_MODULE
        keytab, principal = config.get("sasl.kerberos.keytab", ""), config.get("sasl.kerberos.principal", "")
        options = {"useKeyTab": "true", "storeKey": "true", "keyTab": keytab, "principal": principal}
    else:
        raise ClientSettingError(
            f"sasl.mechanism={mechanism} cannot be handed to Spark's Kafka connector.",
            next_step="Use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or GSSAPI.",
        )
    quoted = " ".join(f"{name}={_quoted(str(value))}" for name, value in options.items())
    result = {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {quoted};"}
    if "sasl.kerberos.service.name" in config:
        result["sasl.kerberos.service.name"] = str(config["sasl.kerberos.service.name"])
    return result


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _java_certificates(config: Mapping[str, Any]) -> dict[str, str]:
    result: dict[str, str] = {}
    if trusted := _pem(config, "ssl.ca"):
        result |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trusted}
    if own := _pem(config, "ssl.certificate"):
        result |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": own,
            "ssl.keystore.key": _pem(config, "ssl.key"),
        }
    if "ssl.key.password" in config:
        result["ssl.key.password"] = str(config["ssl.key.password"])
    if config.get("ssl.endpoint.identification.algorithm") == "none":
        result["ssl.endpoint.identification.algorithm"] = ""
    return result


def _pem(config: Mapping[str, Any], name: str) -> str:
    """Text of `<name>.pem`, or of the file `<name>.location`: executors elsewhere do not have the file."""
    if f"{name}.pem" in config:
        return str(config[f"{name}.pem"])
    if f"{name}.location" not in config:
        return ""
    try:
        return Path(config[f"{name}.location"]).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ClientSettingError(
            f"{name}.location cannot be read: {error}.", next_step="Give a PEM file that this process may read."
        ) from error
