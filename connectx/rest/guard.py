"""Access checks before the REST application: host names, logins and a limit of simultaneous requests.

Decides by the headers of a request alone: a name that a web page of another site could use (403), a missing or wrong
login (401), too many requests at the same time (503). Never logs a header. Kafka Connect leaves logins to extensions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from connectx.protocol.signing import AUTHORIZATION_HEADER
from connectx.rest.call import error_response
from connectx.rest.credentials import Credentials

UNKNOWN_SENDER: Final = "connectx.unknown_sender"
"""Key of the scope: True for a request between workers that has a signature and no login."""

NO_LOGIN: Final = "This worker answers only requests with a valid login"
_BUSY: Final = "This worker answers as many requests as it may at the same time; try again"
_FOREIGN: Final = "This worker answers only requests that are made to its own address"
_PUBLIC: Final = ("/health",)


@dataclass(slots=True)
class Guard:
    """An ASGI application before another.

    Attributes:
        app: answers what is let in.
        allowed_hosts: names that a browser may know this worker by (None: any).
        allowed_origins: further origins of web pages that may ask (`access.control.allow.origin`).
        credentials: logins (None: everyone may ask).
        max_requests: requests that are answered at the same time; `/health` is answered always and does not count.
    """

    app: ASGIApp
    allowed_hosts: Collection[str] | None
    allowed_origins: Collection[str]
    credentials: Credentials | None
    max_requests: int
    under_way: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        request = Request(scope)
        is_public = scope["path"] in _PUBLIC
        if self._is_foreign(request):
            await error_response(403, _FOREIGN)(scope, receive, send)
        elif not is_public and not self._is_known(request):
            assert self.credentials is not None
            await error_response(401, NO_LOGIN, self.credentials.challenge)(scope, receive, send)
        elif is_public:
            await self.app(scope, receive, send)
        elif self.under_way >= self.max_requests:
            await error_response(503, _BUSY, {"retry-after": "1"})(scope, receive, send)
        else:
            self.under_way += 1
            try:
                await self.app(scope, receive, send)
            finally:
                self.under_way -= 1

    def _is_foreign(self, request: Request) -> bool:
        """True for what a page of another site makes a browser send (also through DNS rebinding)."""
        origin = request.headers.get("origin")
        if self.allowed_hosts is None or (origin is not None and {origin, "*"} & {*self.allowed_origins}):
            return False
        try:
            hosts = [urlsplit(f"//{request.headers.get('host', '')}").hostname]
            if origin is not None:
                hosts.append(urlsplit(origin).hostname)
        except ValueError:  # no name at all, such as one with half of the brackets of IPv6
            return True
        return not all(host in self.allowed_hosts for host in hosts)

    def _is_known(self, request: Request) -> bool:
        """True with a login, or for what workers sign: the core verifies the signature."""
        scope = request.scope
        scope[UNKNOWN_SENDER] = False
        if self.credentials is None or self.credentials.accept(request.headers.get("authorization")):
            return True
        scope[UNKNOWN_SENDER] = _is_internal(request) and AUTHORIZATION_HEADER in request.headers
        return bool(scope[UNKNOWN_SENDER])


def _is_internal(request: Request) -> bool:
    path = request.scope["raw_path"].decode("ascii", "replace").rstrip("/").split("/")
    place = (request.method, len(path), path[1] if len(path) > 1 else "", path[-1])
    return place in (("POST", 4, "connectors", "tasks"), ("PUT", 4, "connectors", "fence"))
