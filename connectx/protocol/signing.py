"""Signatures of internal requests between workers.

It decides whether a signature is good, and with which status a bad one is refused. It never decides whether requests
must be signed (group protocol `sessioned` only). Mirrors Kafka Connect's InternalRequestSignature (KIP-507).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Collection
from dataclasses import dataclass

AUTHORIZATION_HEADER = "X-Connect-Authorization"
ALGORITHM_HEADER = "X-Connect-Request-Signature-Algorithm"

_DIGESTS = {
    "HmacMD5": "md5",
    "HmacSHA1": "sha1",
    "HmacSHA224": "sha224",
    "HmacSHA256": "sha256",
    "HmacSHA384": "sha384",
    "HmacSHA512": "sha512",
}
ALGORITHMS = tuple(_DIGESTS)  # as Java spells them


@dataclass(frozen=True, slots=True)
class SignatureVerified:
    """The request comes from a worker of this group."""


@dataclass(frozen=True, slots=True)
class SignatureRefused:
    """The request must be answered with this HTTP status."""

    status: int
    message: str


def sign(key: bytes, body: bytes | None, algorithm: str = "HmacSHA256") -> str:
    """Base64 of the MAC over the exact bytes of the body (none is the same as empty). KeyError: unknown algorithm."""
    return base64.b64encode(_mac(key, body, algorithm)).decode()


def signature_headers(key: bytes, body: bytes | None, algorithm: str = "HmacSHA256") -> dict[str, str]:
    """Both headers of a signed request."""
    return {AUTHORIZATION_HEADER: sign(key, body, algorithm), ALGORITHM_HEADER: algorithm}


def verify(
    signature: str | None,
    algorithm: str | None,
    body: bytes | None,
    key: bytes | None,
    allowed: Collection[str] = ("HmacSHA256",),
) -> SignatureVerified | SignatureRefused:
    """Check a request: the values of its two headers, its body, the session key and the algorithms allowed.

    `allowed` is the worker setting `inter.worker.verification.algorithms`. Compares in constant time.
    """
    if signature is None or algorithm is None:
        return SignatureRefused(400, "An internal request must be signed, and its signature headers are missing")
    if algorithm not in _DIGESTS:
        return SignatureRefused(400, f"The signature algorithm {algorithm} is not known")
    try:
        given = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return SignatureRefused(400, "The request signature is not Base64")
    if algorithm not in allowed:
        return SignatureRefused(
            400,
            f"The signature algorithm {algorithm} is not allowed here; inter.worker.verification.algorithms lists "
            f"{', '.join(sorted(allowed))}",
        )
    if key is None:
        return SignatureRefused(503, "This worker has not read a session key yet; try again")
    if not hmac.compare_digest(given, _mac(key, body, algorithm)):
        return SignatureRefused(403, "The request signature does not fit the session key of this worker")
    return SignatureVerified()


def _mac(key: bytes, body: bytes | None, algorithm: str) -> bytes:
    return hmac.digest(key, body or b"", _DIGESTS[algorithm])
