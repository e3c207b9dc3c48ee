"""Signatures of internal requests, against the test vectors of Java's Mac."""

from __future__ import annotations

import pytest

from connectx.model.config_records import SessionKeyRecord
from connectx.protocol.signing import (
    ALGORITHM_HEADER,
    AUTHORIZATION_HEADER,
    sign,
    signature_error,
    signature_headers,
)

KEY = bytes(range(32))
SESSION_KEY = SessionKeyRecord(KEY, "HmacSHA256", 1)
BODY = b'[{"a":"b"}]'
GOOD = "Eroe1tB3QaSe5EJ0n/U/3E2UQZRh4D5G73yb9AU1xkM="


def test_the_signature_is_that_of_java() -> None:
    assert sign(KEY, b"") == "04tCCW2A9F+Ca0Sp1WB95ySWpBXT9KGoyI47udqNwcs="
    assert sign(KEY, None) == sign(KEY, b"")
    assert sign(KEY, BODY) == GOOD


def test_a_signed_request_has_two_headers() -> None:
    assert signature_headers(KEY, BODY) == {AUTHORIZATION_HEADER: GOOD, ALGORITHM_HEADER: "HmacSHA256"}


def test_a_good_signature_is_accepted() -> None:
    assert signature_error(SESSION_KEY, BODY, GOOD, "HmacSHA256") is None
    other = sign(KEY, BODY, "HmacSHA512")
    assert signature_error(SESSION_KEY, BODY, other, "HmacSHA512", ["HmacSHA256", "HmacSHA512"]) is None
    assert signature_error(SESSION_KEY, None, sign(KEY, None), "HmacSHA256") is None


@pytest.mark.parametrize(
    ("signature", "algorithm", "body", "key", "status"),
    [
        (None, "HmacSHA256", BODY, SESSION_KEY, 400),
        (GOOD, None, BODY, SESSION_KEY, 400),
        (GOOD, "HmacMagic", BODY, None, 400),
        ("%%%", "HmacSHA256", BODY, None, 400),
        ("ä", "HmacSHA256", BODY, None, 400),
        (GOOD, "HmacSHA1", BODY, None, 400),
        (GOOD, "HmacSHA256", BODY, None, 503),
        (GOOD, "HmacSHA256", BODY, SessionKeyRecord(b"another", "HmacSHA256", 1), 403),
        (GOOD, "HmacSHA256", BODY + b" ", SESSION_KEY, 403),
        ("AAAA", "HmacSHA256", BODY, SESSION_KEY, 403),
        ("", "HmacSHA256", BODY, SESSION_KEY, 403),
    ],
)
def test_a_bad_signature_is_refused_with_the_status_of_the_first_check_that_fails(
    signature: str | None, algorithm: str | None, body: bytes, key: SessionKeyRecord | None, status: int
) -> None:
    error = signature_error(key, body, signature, algorithm)
    assert error is not None
    assert error[0] == status
    assert error[1]
