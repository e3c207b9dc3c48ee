"""TLS of the REST API: for its listeners, and for requests between workers.

Decides what `listeners.https.ssl.*` mean, or `ssl.*` where there are none of these, as in Kafka Connect. Stores are
PEM or PKCS#12. A key or password is never shown.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping

from connectx.errors.rest import RestTlsError
from connectx.key_stores import KeyStore, read_pkcs12
from connectx.model.worker_config import WorkerConfig

_PREFIX = "listeners.https."
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(config: WorkerConfig, prefix: str = _PREFIX) -> ssl.SSLContext:
    """For an https listener: its certificate, and which clients it trusts.

    Raises:
        RestTlsError: there is no certificate, or it cannot be used.
    """
    settings = _settings(config, prefix)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if not _load_certificate(context, settings):
        raise _error("An https listener needs a certificate.", "Set ssl.keystore.type=PEM and ssl.keystore.location.")
    asked = settings.get("ssl.client.auth", "none").lower()
    if asked not in _CLIENT_AUTH:
        raise _error(f"ssl.client.auth={asked} is not known.", f"Use one of {', '.join(_CLIENT_AUTH)}.")
    if asked != "none" and not _load_trusted(context, settings):
        raise _error(f"ssl.client.auth={asked} needs certificates to trust.", "Set ssl.truststore.location.")
    context.verify_mode = _CLIENT_AUTH[asked]
    return context


def client_context(config: WorkerConfig) -> ssl.SSLContext:
    """For requests to workers: the trusted certificates, and the worker's own certificate if it has one.

    Without a truststore and without an https listener it trusts no certificate, so that http needs none.

    Raises:
        RestTlsError: a certificate cannot be used.
    """
    settings = _settings(config, _PREFIX)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if any(listener.lower().startswith("https") for listener in config.listeners):
        if not _load_trusted(context, settings):
            context.load_default_certs()
        _load_certificate(context, settings)
    if not settings.get("ssl.endpoint.identification.algorithm", "https"):
        context.check_hostname = False
    return context


def _settings(config: WorkerConfig, prefix: str) -> Mapping[str, str]:
    """All with the prefix, or all without it (Kafka: valuesWithPrefixAllOrNothing)."""
    own = {name: value for name, value in config.prefixed(prefix).items() if name.startswith("ssl.")}
    return own or {name: value for name, value in config.originals.items() if name.startswith("ssl.")}


def _load_certificate(context: ssl.SSLContext, settings: Mapping[str, str]) -> bool:
    """Load certificate and key from the keystore; False when none is set."""
    location, chain = settings.get("ssl.keystore.location"), settings.get("ssl.keystore.certificate.chain")
    if not location and not chain:
        return False
    password = settings.get("ssl.key.password") or settings.get("ssl.keystore.password") or ""
    key = settings.get("ssl.keystore.key", "")
    if location and not _is_pem(settings, "keystore"):
        store = _read(settings, "keystore", location)
        location, chain, key = "", store.certificates, store.key
        password = settings.get("ssl.keystore.password", "")
    try:
        if location:  # without a password, an encrypted key must not make OpenSSL ask for one at the terminal
            context.load_cert_chain(location, password=password)
        else:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # Python's ssl reads keys from files only
                file.write(f"{chain}\n{key}\n")
                file.flush()
                context.load_cert_chain(file.name, password=password)
    except (OSError, ValueError) as error:
        what = f"ssl.keystore.location={location}" if location else "ssl.keystore.certificate.chain"
        raise _unusable(what, error) from None
    return True


def _load_trusted(context: ssl.SSLContext, settings: Mapping[str, str]) -> bool:
    location, given = settings.get("ssl.truststore.location"), settings.get("ssl.truststore.certificates")
    if not location and not given:
        return False
    is_pem = not location or _is_pem(settings, "truststore")
    trusted = given if is_pem or not location else _read(settings, "truststore", location).certificates
    try:
        context.load_verify_locations(cafile=location if is_pem else None, cadata=trusted)
    except (OSError, ValueError) as error:
        raise _unusable(f"ssl.truststore.location={location}", error) from None
    return True


def _is_pem(settings: Mapping[str, str], store: str) -> bool:
    return settings.get(f"ssl.{store}.type", "JKS").upper() == "PEM"


def _read(settings: Mapping[str, str], store: str, path: str) -> KeyStore:
    try:
        return read_pkcs12(path, settings.get(f"ssl.{store}.password", ""))
    except ValueError as error:
        raise _error(
            f"ssl.{store}.location={path} cannot be used: {error}.",
            f"Check the file and ssl.{store}.password; for a PEM file set ssl.{store}.type=PEM.",
        ) from None


def _unusable(what: str, error: Exception) -> RestTlsError:
    """An error that names the failed file without its content."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return _error(f"{what} cannot be used: {reason}.", "It must be PEM, with the key before or after its certificate.")


def _error(reason: str, next_step: str) -> RestTlsError:
    return RestTlsError(f"REST cannot use TLS. {reason}", next_step=next_step)
