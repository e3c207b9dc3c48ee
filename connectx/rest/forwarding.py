"""Forwards a request to the worker that must handle it. Mirrors Kafka Connect's HerderRequestHandler and RestClient.

A request of a user may take two hops between workers: the first adds `forward=true` to the query, the second
`forward=false`, and a third is refused with a 409, because ownership must have moved meanwhile.
"""

from __future__ import annotations

from urllib.parse import urlencode

import httpx
from starlette.requests import Request
from starlette.responses import Response

from connectx.errors.rest import RestError
from connectx.model.worker_config import WorkerConfig
from connectx.protocol.signing import ALGORITHM_HEADER, AUTHORIZATION_HEADER
from connectx.responses import PLAIN, WORKER_BYTES, BodyError, Limit
from connectx.rest.tls import client_context

_PASSED_ON = ("authorization", "content-type", AUTHORIZATION_HEADER, ALGORITHM_HEADER)
_RETURNED = ("content-type", "location")


class Forwarder:
    """Sends requests to other workers; lives in the event loop of one server."""

    def __init__(self, timeout_s: float, config: WorkerConfig) -> None:
        self._limit = Limit(WORKER_BYTES, timeout_s)
        self._timeout = httpx.Timeout(timeout_s, connect=5.0)
        self._verify = client_context(config)
        self._client: httpx.AsyncClient | None = None

    async def forward(self, request: Request, body: bytes, worker_url: str) -> Response:
        """The answer of `worker_url`, unchanged.

        Raises:
            RestError: 409 after two hops, or when that worker cannot be reached; 500 when it gives no answer.
        """
        target = httpx.URL(worker_url).copy_with(raw_path=self._path(request))
        headers = {**PLAIN, "accept": "application/json", "user-agent": "kafka-connect"}
        headers |= {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        try:
            client = self._connected()
            sent = client.build_request(request.method, target, content=body, headers=headers)
            answer = await client.send(sent, stream=True)
            content = await self._limit.read_async(answer)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            # Kafka Connect answers 500. This worker was not reached, so nothing was done and asking again is safe.
            message = f"{worker_url} must handle this request but cannot be reached; retry after the next rebalance"
            raise RestError(message, status=409) from error
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            message = f"IO Error trying to forward REST request to {worker_url}: {reason}"
            raise RestError(message, status=500) from error
        except BodyError as error:
            raise RestError(
                f"{worker_url}, which must handle this request, answers with {error}", status=500
            ) from error
        returned = {name: answer.headers[name] for name in _RETURNED if name in answer.headers}
        return Response(content, answer.status_code, returned)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            # Proxies of the environment are not for workers.
            self._client = httpx.AsyncClient(timeout=self._timeout, trust_env=False, verify=self._verify)
        return self._client

    def _path(self, request: Request) -> bytes:
        hop = request.query_params.get("forward")
        if hop is not None and hop.lower() != "true":
            raise RestError(
                "Cannot complete request because of a conflicting operation (e.g. worker rebalance)", status=409
            )
        query = [(name, value) for name, value in request.query_params.multi_items() if name != "forward"]
        query.append(("forward", "true" if hop is None else "false"))
        path: bytes = request.scope["raw_path"]
        return path + b"?" + urlencode(query).encode("ascii")
