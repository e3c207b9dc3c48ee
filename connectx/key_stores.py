"""PKCS#12 key and trust stores as PEM, which Python's TLS, librdkafka and Java all read.

Stores are converted in memory. A private key leaves its store encrypted with the password of the store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from connectx.extras import require
from connectx.values import Value

_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


class KeyStore(Value):
    """PEM texts. `certificates` begins with that of the key, if there is a key; without one, `key` is empty."""

    certificates: str
    key: str


def read_pkcs12(path: str, password: str) -> KeyStore:
    """Read a store, whatever its stated type: Java, too, takes PKCS#12 for the type JKS.

    Raises:
        ValueError: the file cannot be read, is no PKCS#12 store, or has another password; the message is the reason.
        MissingExtraError: the package that reads it is not installed.
    """
    require("A PKCS#12 store", "tls", "cryptography")
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        pkcs12,
    )

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(error.strerror) from None
    if data.startswith(_JKS_MAGIC):
        raise ValueError(
            "it is a JKS store, which only Java reads (keytool -importkeystore -deststoretype PKCS12 converts it)"
        )
    secret = password.encode() or None
    try:
        store = pkcs12.load_pkcs12(data, secret)
    except ValueError:
        raise ValueError("it is no PKCS#12 store, or its password is another one") from None
    found = ([store.cert] if store.cert is not None else []) + list(store.additional_certs)
    certificates = "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in found)
    if store.key is None:
        return KeyStore(certificates, "")
    encryption = BestAvailableEncryption(secret) if secret else NoEncryption()
    return KeyStore(certificates, store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode())
