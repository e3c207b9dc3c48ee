"""TLS of connections to MySQL and MariaDB, by the parameters of their Java drivers.

Decides from the parameters of a URL whether a connection is encrypted, and whether the certificate and the name of the
server are verified. With a certificate to trust and no mode both are. A parameter about trust that has no meaning here
is refused, so that nothing is less safe than its URL. Mirrors `sslMode` of Connector/J and MariaDB Connector/J.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from connectx.errors.databases import DatabaseError
from connectx.errors.plugins import ConfigError
from connectx.key_stores import KeyStore, read_pkcs12

_NAMES: Final[Mapping[str, str]] = {
    "sslmode": "mode",
    "usessl": "use",
    "requiressl": "require",
    "verifyservercertificate": "verify",
    "trustservercertificate": "trust",
    "disablesslhostnameverification": "any name",
    "sslca": "ca",
    "serversslcert": "ca",
    "truststore": "trust store",
    "trustcertificatekeystoreurl": "trust store",
    "truststoretype": "trust type",
    "trustcertificatekeystoretype": "trust type",
    "truststorepassword": "trust password",
    "trustcertificatekeystorepassword": "trust password",
    "fallbacktosystemtruststore": "system",
    "sslcert": "certificate",
    "sslkey": "key",
    "sslkeypassword": "key password",
    "keypassword": "key password",
    "keystore": "key store",
    "clientcertificatekeystoreurl": "key store",
    "keystoretype": "key type",
    "clientcertificatekeystoretype": "key type",
    "keystorepassword": "key store password",
    "clientcertificatekeystorepassword": "key store password",
    "tlsversions": "versions",
    "enabledtlsprotocols": "versions",
    "enabledsslprotocolsuites": "versions",
    "password": "",
}
"""What a parameter means, by its name in lower case without - and _; empty: it is read elsewhere."""
_ABOUT_TRUST: Final = re.compile(r"ssl|tls|cert|trust|keystore|publickey|auth|fips|cleartext|password")
_BOOLEANS: Final = {"true": True, "yes": True, "false": False, "no": False}
_VERSIONS: Final = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}
_STORES: Final = ("JKS", "PKCS12", "PEM")
_TRUST: Final = ("ca", "trust store", "trust type", "trust password", "system")
_OWN: Final = ("certificate", "key", "key password", "key store", "key type", "key store password")


class Mode(IntEnum):
    """How much a connection must be protected; each holds all that the ones before it do."""

    DISABLED = 0
    PREFERRED = 1
    REQUIRED = 2
    VERIFY_CA = 3
    VERIFY_IDENTITY = 4


_MODES: Final = {mode.name.lower(): mode for mode in Mode} | {
    "disable": Mode.DISABLED,
    "0": Mode.DISABLED,
    "false": Mode.DISABLED,
    "trust": Mode.REQUIRED,
    "verify-ca": Mode.VERIFY_CA,
    "verify-full": Mode.VERIFY_IDENTITY,
    "1": Mode.VERIFY_IDENTITY,
    "true": Mode.VERIFY_IDENTITY,
}


@dataclass(frozen=True, slots=True)
class Tls:
    """Protection of one connection. `given`: parameters by their meaning; `names`: how the URL names them."""

    mode: Mode
    given: Mapping[str, str]
    names: Mapping[str, str]

    @classmethod
    def of(cls, parameters: Sequence[tuple[str, str]], *, is_mariadb: bool, is_local: bool) -> Tls:
        """From the parameters of a URL; `is_mariadb` has MariaDB's meaning of the older ones.

        Raises:
            ConfigError: an unknown parameter about trust, an unknown value, or parameters that contradict each other.
        """
        given, names = _known(parameters)
        older = _older_mode(given, names, is_mariadb=is_mariadb)
        mode = older
        if "mode" in given:
            mode = _MODES.get(given["mode"].lower())
            if mode is None:
                known = (
                    "DISABLED, PREFERRED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY, disable, trust, verify-ca, verify-full"
                )
                raise _refused(names["mode"], f"its value is none of {known}")
            if older not in (None, mode):
                raise _refused(names["mode"], "other parameters of the URL ask for another mode")
        trust, own = (next((one for one in kind if one in given), None) for kind in (_TRUST, (*_OWN, "versions")))
        if mode is None:
            implied = Mode.DISABLED if is_local else Mode.PREFERRED
            mode = Mode.VERIFY_IDENTITY if trust else Mode.REQUIRED if own else implied
        if trust and mode < Mode.VERIFY_CA:
            raise _refused(names[trust], f"it has no effect with {mode.name}. Use sslMode=VERIFY_IDENTITY")
        if own and mode < Mode.REQUIRED:
            raise _refused(names[own], f"it has no effect with {mode.name}. Use sslMode=REQUIRED or VERIFY_IDENTITY")
        if mode >= Mode.VERIFY_CA and given.get("system") == "false" and not {"ca", "trust store"} & {*given}:
            raise _refused(names["system"], "then the URL must name certificates to trust")
        return cls(mode, given, names)

    def context(self) -> ssl.SSLContext | None:
        """For a connection that must be encrypted; None for one that need not be.

        Raises:
            DatabaseError: a file cannot be used.
        """
        if self.mode < Mode.REQUIRED:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.mode is Mode.VERIFY_IDENTITY
        if self.mode is Mode.REQUIRED:
            context.verify_mode = ssl.CERT_NONE
        elif not self._load_trusted(context):
            context.load_default_certs()
        self._load_own(context)
        if versions := [_VERSIONS[one.strip().upper()] for one in _listed(self.given.get("versions", ""))]:
            context.minimum_version, context.maximum_version = min(versions), max(versions)
        return context

    def _load_trusted(self, context: ssl.SSLContext) -> bool:
        """Trust what the URL names, also a certificate that is the server's and no authority's."""
        if "ca" not in self.given and "trust store" not in self.given:
            return False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        for meaning in ("ca", "trust store"):
            if meaning in self.given:
                text = self._store(meaning, "trust password").certificates
                with self._using(meaning):
                    context.load_verify_locations(cadata=text)
        return True

    def _load_own(self, context: ssl.SSLContext) -> None:
        meaning = "key store" if "key store" in self.given else "certificate"
        if meaning not in self.given:
            return
        store = self._store(meaning, "key store password")
        key = store.key or (self._store("key", "key password").certificates if "key" in self.given else "")
        secret = self.given.get("key password") or self.given.get("key store password") or ""
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file, self._using(meaning):
            file.write(f"{store.certificates}\n{key}\n")  # Python's ssl reads keys from files only
            file.flush()
            # Without a password, an encrypted key must not make OpenSSL ask for one at the terminal.
            context.load_cert_chain(file.name, password=lambda: secret)

    def _store(self, meaning: str, password: str) -> KeyStore:
        """PEM texts of a value that is PEM itself, or of its file."""
        value = self.given[meaning]
        if "-----BEGIN" in value:
            return KeyStore(value, "")
        path = re.sub(r"^file:(//(?=/))?", "", value)
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise self._unusable(meaning, error.strerror or type(error).__name__) from None
        if b"-----BEGIN" in data:
            return KeyStore(data.decode("utf-8", "replace"), "")
        try:
            return read_pkcs12(path, self.given.get(password, ""))
        except ValueError as error:
            raise self._unusable(meaning, str(error)) from None

    @contextmanager
    def _using(self, meaning: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # texts of OpenSSL may quote the file
            raise self._unusable(meaning, getattr(error, "reason", None) or type(error).__name__) from None

    def _unusable(self, meaning: str, reason: str) -> DatabaseError:
        return DatabaseError(
            f"The file that {self.names[meaning]} in connection.url names cannot be used: {reason}.",
            next_step="Check the path, its password and who may read it (PEM or PKCS#12), and restart the task.",
        )


def _known(parameters: Sequence[tuple[str, str]]) -> tuple[dict[str, str], dict[str, str]]:
    """Values and names of parameters by their meaning."""
    given, names = dict[str, str](), dict[str, str]()
    for name, value in parameters:
        plain = re.sub(r"[-_]", "", name).lower()
        meaning = _NAMES.get(plain)
        if meaning is None and _ABOUT_TRUST.search(plain):
            raise _refused(name, "connectx does not know this parameter, and ignores none that is about trust")
        if meaning and meaning in given:
            raise _refused(name, f"the URL has {names[meaning]}, which means the same")
        if meaning and not value:
            raise _refused(name, "it has no value")
        if meaning:
            given[meaning], names[meaning] = value, name
    for meaning in ("trust type", "key type"):
        if given.get(meaning, "PEM").upper() not in _STORES:
            raise _refused(names[meaning], f"its value is none of {', '.join(_STORES)}")
    for version in _listed(given.get("versions", "")):
        if version.strip().upper() not in _VERSIONS:
            raise _refused(names["versions"], "its value is not TLSv1.2, TLSv1.3 or both")
    if "key" in given and "certificate" not in given:
        raise _refused(names["key"], "the URL has no sslCert, to which the key belongs")
    return given, names


def _older_mode(given: Mapping[str, str], names: Mapping[str, str], *, is_mariadb: bool) -> Mode | None:
    """The mode that the parameters before `sslMode` ask for; None without any."""
    flags = {
        one: given[one].lower() for one in ("use", "require", "verify", "trust", "any name", "system") if one in given
    }
    if wrong := next((one for one, value in flags.items() if value not in _BOOLEANS), None):
        raise _refused(names[wrong], "its value is neither true nor false")
    is_on = {one: _BOOLEANS[value] for one, value in flags.items() if one != "system"}
    if not is_on:
        return None
    asked = {
        Mode.VERIFY_CA: is_on.get("verify") or is_on.get("any name"),
        Mode.REQUIRED: is_on.get("require") or is_on.get("trust"),
    }
    wanted = [mode for mode, is_wanted in asked.items() if is_wanted]
    if is_on.get("use") is False:
        if wanted:
            raise _refused(names["use"], "other parameters of the URL ask for TLS")
        return Mode.DISABLED
    if is_on.get("trust") and (is_on.get("verify") or is_on.get("any name")):
        raise _refused(names["trust"], "another parameter of the URL asks to verify the certificate")
    if wanted:
        return wanted[0]
    if is_on.get("use"):
        return Mode.VERIFY_IDENTITY if is_mariadb else Mode.PREFERRED
    return None


def _listed(text: str) -> list[str]:
    return [one for one in text.split(",") if one.strip()]


def _refused(name: str, why: str) -> ConfigError:
    return ConfigError([f"Invalid parameter {name} in configuration connection.url: {why}"])
