"""Signatures of internal requests between workers.

It decides whether a signature is good, and with which status a bad one is refused. It never decides whether requests
must be signed (group protocol `sessioned` only). Mirrors Kafka Connect's InternalRequestSignature (KIP-507).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Collection

from connectx.model.config_records import SessionKeyRecord

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


def sign(key: bytes, body: bytes | None, algorithm: str = "HmacSHA256") -> str:
    """Base64 of the MAC over the exact bytes of the body (none is the same as empty). KeyError: unknown algorithm."""
    return base64.b64encode(_mac(key, body, algorithm)).decode()


def signature_headers(key: bytes, body: bytes | None, algorithm: str = "HmacSHA256") -> dict[str, str]:
    """Both headers of a signed request."""
    return {AUTHORIZATION_HEADER: sign(key, body, algorithm), ALGORITHM_HEADER: algorithm}


def signature_error(
    session_key: SessionKeyRecord | None,
    body: bytes | None,
    signature: str | None,
    algorithm: str | None,
    allowed: Collection[str] = ("HmacSHA256",),
) -> tuple[int, str] | None:
    """Why a request is not accepted, as an HTTP status and a message; None when its signature is good.

    `signature` and `algorithm` are the values of its two headers, `body` its exact bytes, `allowed` the worker setting
    `inter.worker.verification.algorithms`. Compares in constant time.
    """
    if signature is None or algorithm is None:
        return 400, "An internal request must be signed, and its signature headers are missing"
    if algorithm not in _DIGESTS:
        return 400, f"The signature algorithm {algorithm} is not known"
    try:
        given = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return 400, "The request signature is not Base64"
    if algorithm not in allowed:
        names = ", ".join(sorted(allowed))
        return 400, f"The signature algorithm {algorithm} is none of inter.worker.verification.algorithms ({names})"
    if session_key is None:
        return 503, "This worker has not read a session key yet; try again"
    if not hmac.compare_digest(given, _mac(session_key.key, body, algorithm)):
        return 403, "The request signature does not fit the session key of this worker"
    return None


def _mac(key: bytes, body: bytes | None, algorithm: str) -> bytes:
    return hmac.digest(key, body or b"", _DIGESTS[algorithm])
