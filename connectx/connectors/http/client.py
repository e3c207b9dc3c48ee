"""Sends requests to a web service, and decides by the response what to do next."""

from __future__ import annotations

import email.utils
import logging
import ssl
import time
from collections.abc import Callable
from datetime import UTC
from types import TracebackType
from typing import Final

import httpx

from connectx.connectors.http.config import HttpSettings
from connectx.connectors.http.errors import HttpError, HttpUnavailableError, RequestRefusedError
from connectx.connectors.http.oauth import Tokens
from connectx.connectors.http.requests import Request
from connectx.responses import BodyError, Limit
from connectx.views import HIDDEN

_HTTPX_LOG: Final = logging.getLogger("httpx")
_UNAUTHORIZED: Final = 401
_GONE: Final = frozenset({404, 410})
_SHOWN_CHARACTERS: Final = 200
_RETRY_AFTER_MAX_MS: Final = 3_600_000
_BODY_BYTES: Final = 64 * 1024
"""Of a response's body that are read; a longer one closes its connection."""


class HttpTarget:
    """One client with its kept connections, used by one thread.

    Args:
        settings: where and how.
        transport: in place of the network.
        clock_s: seconds since 1970, for a Retry-After that is a date.
    """

    def __init__(
        self,
        settings: HttpSettings,
        transport: httpx.BaseTransport | None = None,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        if _HTTPX_LOG.level == logging.NOTSET:  # its INFO lines have whole URLs, which may hold keys
            _HTTPX_LOG.setLevel(logging.WARNING)
        self._settings = settings
        self._clock_s = clock_s
        timeout = httpx.Timeout(settings.request_timeout_s, connect=settings.connect_timeout_s)
        verify = tls_context(settings)
        self._client = httpx.Client(
            auth=settings.basic,
            headers={"Accept-Encoding": "identity", **settings.headers},
            timeout=timeout,
            verify=verify,
            transport=transport,
        )
        self._tokens: Tokens | None = None
        if settings.oauth is not None:
            self._tokens = Tokens(settings.oauth, httpx.Client(timeout=timeout, verify=verify, transport=transport))

    def send(self, request: Request) -> None:
        """Send one request and wait for its response.

        Raises:
            HttpUnavailableError: send it again later; `retry_after_ms` if the target has named a time.
            RequestRefusedError: the target refuses these records.
            HttpLoginError: the token service gives no token.
            HttpError: the target does not accept any request like this.
        """
        settings = self._settings
        response = self._response(request)
        if response.status_code == _UNAUTHORIZED and self._tokens is not None:
            self._tokens.forget()  # revoked, or the clocks differ
            response = self._response(request)
        status = response.status_code
        if response.is_success or (request.method == "DELETE" and status in _GONE):
            return
        answer = self._answer(response)
        if status in settings.retry_on:
            raise HttpUnavailableError(f"{settings.place} {answer}.", retry_after_ms=self._retry_after_ms(response))
        if status in settings.refused_on:
            raise RequestRefusedError(answer)
        raise HttpError(
            f"{settings.place} {answer} to {request.method}.",
            next_step="Correct http.api.url, the login or the headers, or name the status code in "
            "retry.on.status.codes or record.error.status.codes, and restart the task.",
        )

    def close(self) -> None:
        self._client.close()
        if self._tokens is not None:
            self._tokens.close()

    def __enter__(self) -> HttpTarget:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _response(self, request: Request) -> httpx.Response:
        settings = self._settings
        headers = {settings.idempotency_header: request.id} if settings.idempotency_header else {}
        if self._tokens is not None:
            headers["Authorization"] = f"Bearer {self._tokens.current()}"
        try:
            sent = self._client.build_request(
                request.method, request.url, content=request.body(settings), headers=headers
            )
            return _bounded(self._client.send(sent, stream=True), settings.request_timeout_s)
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise HttpUnavailableError(f"{settings.place} cannot be reached: {reason}.") from error

    def _retry_after_ms(self, response: httpx.Response) -> int:
        """The pause in the header, in seconds or as a date; an hour at most, 0 without a readable one (RFC 9110)."""
        text = response.headers.get("Retry-After", "").strip()
        if text.isascii() and text.isdecimal():
            after_ms = int(text[:9]) * 1000
        else:
            try:
                date = email.utils.parsedate_to_datetime(text)
            except ValueError:
                return 0
            after_ms = round((date.replace(tzinfo=date.tzinfo or UTC).timestamp() - self._clock_s()) * 1000)
        return min(max(0, after_ms), _RETRY_AFTER_MAX_MS)

    def _answer(self, response: httpx.Response) -> str:
        """`answered 400 Bad Request: what is wrong`, on one line, without the sink's own secrets."""
        text = " ".join(response.text.split())
        for secret in (*self._settings.secrets, *(self._tokens.secrets if self._tokens is not None else ())):
            text = text.replace(secret, HIDDEN)
        text = f": {text[:_SHOWN_CHARACTERS]}" if text else ""
        return f"answered {response.status_code} {response.reason_phrase}".rstrip() + text


def _bounded(response: httpx.Response, within_s: float) -> httpx.Response:
    """The response with what came of its body in time; a compressed one, which was not asked for, is left out."""
    is_plain = response.headers.get("Content-Encoding", "identity").strip().lower() in ("", "identity")
    body = bytearray()
    try:
        for part in Limit(_BODY_BYTES, within_s).counted(response.iter_raw()):
            body += part
    except BodyError:
        pass  # the status counts, and the beginning is enough for a message
    finally:
        response.close()
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() != "content-encoding"]
    content = bytes(body) if is_plain else b""
    return httpx.Response(response.status_code, headers=headers, content=content, extensions=response.extensions)


def tls_context(settings: HttpSettings) -> ssl.SSLContext:
    """Which certificates are trusted, and the sink's own."""
    context = ssl.create_default_context(cafile=settings.truststore)
    if settings.keystore is not None:
        location, password = settings.keystore
        context.load_cert_chain(location, password=lambda: password)
    return context
