"""Which protection the parameters of a URL ask for."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from connectx.connectors.jdbc.database import DatabaseSettings
from connectx.connectors.jdbc.mysql.session import place_of
from connectx.connectors.jdbc.mysql.tls import Mode, Tls
from connectx.connectors.jdbc.source import JdbcSource
from connectx.errors.databases import DatabaseError
from connectx.errors.plugins import ConfigError


def tls_of(parameters: str, scheme: str = "mysql") -> Tls:
    return place_of(DatabaseSettings(f"jdbc:{scheme}://db.example/shop?{parameters}"))[3]


@pytest.mark.parametrize(
    ("parameters", "mode"),
    [
        ("", Mode.PREFERRED),
        ("useUnicode=true&tcpKeepAlive=true", Mode.PREFERRED),
        ("unix_socket=/run/mysqld.sock", Mode.DISABLED),
        ("sslMode=DISABLED", Mode.DISABLED),
        ("sslmode=preferred", Mode.PREFERRED),
        ("ssl_mode=REQUIRED", Mode.REQUIRED),
        ("sslMode=VERIFY_CA", Mode.VERIFY_CA),
        ("sslMode=VERIFY_IDENTITY", Mode.VERIFY_IDENTITY),
        ("sslMode=disable", Mode.DISABLED),
        ("sslMode=trust", Mode.REQUIRED),
        ("sslMode=verify-ca", Mode.VERIFY_CA),
        ("sslMode=verify-full", Mode.VERIFY_IDENTITY),
        ("useSSL=false", Mode.DISABLED),
        ("useSSL=true", Mode.PREFERRED),
        ("useSSL=true&requireSSL=true", Mode.REQUIRED),
        ("useSSL=true&verifyServerCertificate=true", Mode.VERIFY_CA),
        ("verifyServerCertificate=true&sslMode=VERIFY_CA", Mode.VERIFY_CA),
        ("ssl_ca=/ca.pem", Mode.VERIFY_IDENTITY),
        ("serverSslCert=/ca.pem", Mode.VERIFY_IDENTITY),
        ("trustStore=file:/ca.p12&trustStorePassword=pw", Mode.VERIFY_IDENTITY),
        ("trustCertificateKeyStoreUrl=file:/ca.p12&sslMode=VERIFY_CA", Mode.VERIFY_CA),
        ("tlsVersions=TLSv1.3", Mode.REQUIRED),
        ("keyStore=/own.p12", Mode.REQUIRED),
    ],
)
def test_a_url_asks_for_a_mode_as_the_java_drivers_define_it(parameters: str, mode: Mode) -> None:
    assert tls_of(parameters).mode is mode


@pytest.mark.parametrize(
    ("parameters", "mode"),
    [
        ("useSsl=true", Mode.VERIFY_IDENTITY),
        ("useSsl=true&trustServerCertificate=true", Mode.REQUIRED),
        ("useSsl=true&disableSslHostnameVerification=true", Mode.VERIFY_CA),
        ("trustServerCertificate=true", Mode.REQUIRED),
    ],
)
def test_older_parameters_of_mariadb_have_its_meaning(parameters: str, mode: Mode) -> None:
    assert tls_of(parameters, "mariadb").mode is mode


@pytest.mark.parametrize(
    "parameters",
    [
        "sslMode=",
        "sslMode=VERIFY",
        "sslMode=REQUIRED&sslMode=REQUIRED",
        "sslMode=VERIFY_IDENTITY&ssl-mode=DISABLED",
        "sslMode=DISABLED&useSSL=true&requireSSL=true",
        "sslMode=VERIFY_IDENTITY&useSSL=false",
        "useSSL=false&requireSSL=true",
        "useSSL=maybe",
        "trustServerCertificate=true&verifyServerCertificate=true",
        "sslMode=REQUIRED&ssl_ca=/ca.pem",
        "sslMode=DISABLED&serverSslCert=/ca.pem",
        "sslMode=PREFERRED&trustStore=/ca.p12",
        "sslMode=PREFERRED&keyStore=/own.p12",
        "sslMode=DISABLED&tlsVersions=TLSv1.3",
        "sslMode=VERIFY_CA&fallbackToSystemTrustStore=false",
        "tlsVersions=TLSv1.1,TLSv1.2",
        "sslKey=/key.pem",
        "trustStore=/ca&trustStoreType=BKS",
        "sslCipher=AES",
        "ssl_capath=/etc/ssl",
        "ssl_verify_cert=true",
        "tlsCiphersuites=TLS_AES_128_GCM_SHA256",
        "enabledSslCipherSuites=TLS_AES_128_GCM_SHA256",
        "serverRSAPublicKeyFile=/key.pem",
        "allowPublicKeyRetrieval=false",
        "restrictedAuth=ed25519",
        "password2=second",
        "fipsCompliantJsse=true",
    ],
)
@pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
def test_a_parameter_about_trust_is_never_ignored(parameters: str, scheme: str) -> None:
    with pytest.raises(ConfigError, match="Invalid parameter"):
        tls_of(parameters, scheme)


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:mysql://one.example,two.example/shop",
        "jdbc:mysql:loadbalance://one.example/shop",
        "mysql:shop",
        "jdbc:mysql://address=(host=db)(sslMode=VERIFY_CA)/shop",
        "mysql://db.example:port/shop",
        "mysql://db.example/shop?sslMode=TRUSTED",
    ],
)
def test_a_url_is_refused_when_it_is_validated(url: str) -> None:
    values = JdbcSource.config.validate({"connection.url": url, "mode": "bulk", "topic.prefix": "t-"})
    assert next(value for value in values if value.name == "connection.url").errors


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def test_a_context_verifies_what_its_mode_says(authority: trustme.CA, tmp_path: Path) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    own = authority.issue_cert("client")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    trusted = f"ssl_ca={tmp_path}/ca.pem"
    asked = {"REQUIRED": "", "VERIFY_CA": trusted, "VERIFY_IDENTITY": trusted}
    of = {
        mode: tls_of(f"sslMode={mode}&{more}&sslCert={tmp_path}/own.pem&tlsVersions=TLSv1.3").context()
        for mode, more in asked.items()
    }
    seen = {mode: (made.verify_mode, made.check_hostname) for mode, made in of.items() if made is not None}
    assert seen == {
        "REQUIRED": (ssl.CERT_NONE, False),
        "VERIFY_CA": (ssl.CERT_REQUIRED, False),
        "VERIFY_IDENTITY": (ssl.CERT_REQUIRED, True),
    }
    assert [made.cert_store_stats()["x509"] for made in of.values() if made is not None] == [0, 1, 1]
    assert tls_of("").context() is None


@pytest.mark.parametrize("name", ["ssl_ca", "trustStore", "keyStore", "sslCert"])
@pytest.mark.parametrize("content", [None, b"\xfe\xed\xfe\xed", b"-----BEGIN CERTIFICATE-----\nc2VjcmV0\n", b"s3cret"])
def test_a_file_that_cannot_be_used_is_named_by_its_parameter(tmp_path: Path, name: str, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    with pytest.raises(DatabaseError, match=name) as raised:
        tls_of(f"{name}=file:{tmp_path}/file&sslMode=VERIFY_CA").context()
    assert "s3cret" not in str(raised.value)
