"""One HTTP request to a worker: what a successful response has, or a typed error.

Decides which error a status and message mean; never whether to retry. Never logs a request or a body.
"""

from __future__ import annotations

import ssl
from collections.abc import Generator, Mapping
from typing import Any, Final

import httpx

from connectx.errors.rest import (
    ConfigRejectedError,
    ConnectorExistsError,
    ConnectorNotFoundError,
    RebalancePendingError,
    RestError,
    SignatureRefusedError,
    WorkerNotReadyError,
)
from connectx.model.worker_config import WorkerConfig
from connectx.responses import PLAIN, WORKER_BYTES, BodyError, Limit
from connectx.rest.credentials import Credentials
from connectx.rest.tls import client_context

CONNECT_S = 5.0
"""Limit of connecting; loopback and networks of one site take milliseconds."""

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of metrics."""

_LOG_IN: Final = (
    "Give a login of its rest.auth.basic.file or rest.auth.bearer.file: "
    "cx.attach(url, http=httpx.Client(auth=(user, password))), or --basic-file or --bearer-file of a command."
)


class SilenceError(Exception):
    """A worker gave no answer. `was_sent`: it may have got the request."""

    def __init__(self, cause: Exception, *, was_sent: bool) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.was_sent = was_sent


class Login(httpx.Auth):
    """Shows the first login of the workers' own files, as they are at the time of the request."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if own := self._credentials.own:
            request.headers["authorization"] = own
        yield request


def http_client(config: WorkerConfig | None = None, *, with_login: bool = True) -> httpx.Client:
    """Connections to workers: with the login and the certificates of `config`, or to plain http without a login.

    Raises:
        RestAuthError, RestTlsError: a file that the settings name cannot be used.
    """
    # Proxies of the environment are not for workers. Without settings no certificate is trusted.
    verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if config is None else client_context(config)
    credentials = Credentials.of(config) if with_login and config is not None else None
    return httpx.Client(trust_env=False, verify=verify, auth=None if credentials is None else Login(credentials))


def exchange(
    http: httpx.Client,
    method: str,
    url: str,
    content: bytes | None,
    headers: Mapping[str, str],
    timeout_s: float,
    extensions: dict[str, Any] | None = None,
) -> Any:
    """One request: the JSON of a success, the text of metrics, None when it has no body."""
    sent = {**headers, **PLAIN, "accept": "application/json"}
    if content is not None:
        sent["content-type"] = "application/json"
    try:
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_S)
        request = http.build_request(method, url, content=content, headers=sent, timeout=timeout, extensions=extensions)
        answer = http.send(request, stream=True)
        body = Limit(WORKER_BYTES, timeout_s).read(answer)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise SilenceError(error, was_sent=False) from error
    except (httpx.TransportError, RuntimeError) as error:  # RuntimeError: the client was closed
        raise SilenceError(error, was_sent=True) from error
    except BodyError as error:
        raise RestError(
            f"{request.url} answers with {error}.",
            status=answer.status_code,
            next_step="Check that the URL is that of a Kafka Connect worker.",
        ) from error
    answer = httpx.Response(answer.status_code, headers=answer.headers, content=body, request=request)
    if answer.is_success:
        return _parsed(answer) if body else None
    raise _refusal(method, answer)


def _parsed(answer: httpx.Response) -> Any:
    if answer.headers.get("content-type", "").startswith(PROMETHEUS):
        return answer.text
    try:
        return answer.json()
    except (ValueError, RecursionError) as error:
        raise RestError(
            f"{answer.url} does not answer with JSON.",
            status=answer.status_code,
            next_step="Check that the URL is that of a Kafka Connect worker.",
        ) from error


def _refusal(method: str, answer: httpx.Response) -> RestError:
    """The error that an answer stands for."""
    status, message = answer.status_code, f"HTTP {answer.status_code}"
    try:
        message = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        message = answer.text or message
    if status == 400 and message.startswith("Connector configuration is invalid"):
        lines = message.splitlines()[1:]  # a problem of two keys is there twice
        problems = [line for line in dict.fromkeys(lines) if not line.startswith("You can also find")]
        shown = "".join(f"\n- {problem}" for problem in problems)
        return ConfigRejectedError(f"The configuration is invalid:{shown}", problems)
    if status == 401:
        return RestError(message, status=status, next_step=_LOG_IN)
    if status == 403 and "signature" in message:
        return SignatureRefusedError(message, status=status)
    if status == 404:
        return ConnectorNotFoundError(message, status=status, next_step="Check the name; GET /connectors lists them.")
    if status == 409 and "already exists" in message:
        return ConnectorExistsError(message, status=status, next_step="Change its config, or delete it first.")
    if status == 409 or (status == 500 and method == "GET" and "rebalance" in message):
        return RebalancePendingError(message, status=status, next_step="Try again when the group is stable.")
    if status == 503:
        return WorkerNotReadyError(message, status=status, next_step="Try again in a moment.")
    return RestError(message, status=status)
