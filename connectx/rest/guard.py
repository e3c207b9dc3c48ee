"""Access checks before a REST application: who may ask, logins, types of bodies, a limit of simultaneous requests.

Decides by the headers of a request alone: one that a web page of another origin makes a browser send (403), a missing
or wrong login (401), a change whose body does not claim to be JSON (415), too many requests at the same time (503).
Never logs a header. Kafka Connect leaves logins to extensions.
"""

from __future__ import annotations

import ipaddress
import re
import socket
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
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_JSON: Final = re.compile(r"application/([\w.-]+\+)?json", re.ASCII)
_READING: Final = ("GET", "HEAD", "OPTIONS")
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """By which names a listener may be asked.

    Attributes:
        names: host names in lower case.
        is_local: only this machine reaches it, so requests to any other name are refused. On other listeners only web
            pages must use one of the names, or an address in digits: others may reach it under names that are not
            known here.
    """

    names: Collection[str]
    is_local: bool

    @classmethod
    def of(cls, listening: socket.socket, advertised: str = "") -> Address:
        """The names of a listening socket; `advertised` is a further one."""
        host = listening.getsockname()[0]
        further = {advertised.lower()} - {""}
        if host in _LOOPBACK:
            return cls({*_LOOPBACK, *further}, is_local=True)
        return cls({*_LOOPBACK, host, socket.gethostname().lower(), *further}, is_local=False)

    def has(self, name: str) -> bool:
        """Whether a page may ask by this name. DNS rebinding needs a name, so digits are the listener's own."""
        return name in self.names or (not self.is_local and _is_digits(name))


@dataclass(slots=True)
class Guard:
    """An ASGI application before another.

    Attributes:
        app: answers what is let in.
        address: names of the listener.
        allowed_origins: further origins of web pages that may ask (`access.control.allow.origin`).
        credentials: logins (None: everyone may ask).
        max_requests: requests that are answered at the same time; `/health` is answered always and does not count.
    """

    app: ASGIApp
    address: Address
    allowed_origins: Collection[str]
    credentials: Credentials | None
    max_requests: int
    under_way: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        is_public = scope["path"] in _PUBLIC
        if self._is_foreign(request):
            await error_response(403, _FOREIGN)(scope, receive, send)
        elif not is_public and not self._is_known(request):
            assert self.credentials is not None
            await error_response(401, NO_LOGIN, self.credentials.challenge)(scope, receive, send)
        elif (media_type := _refused_type(request)) is not None:
            message = f"The request body must be application/json, not {media_type}"
            await error_response(415, message)(scope, receive, send)
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
        """True for what a page of another origin makes a browser send, also through DNS rebinding."""
        headers = request.headers
        origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
        if "*" in self.allowed_origins or (origins and {*origins} <= {*self.allowed_origins}):
            return False
        try:
            own = _origin(f"{request.scope['scheme']}://{headers.get('host', '')}")
            is_own = all(_origin(origin) == own for origin in origins)
            is_own = is_own and (self.address.has(own[1]) or not (origins or self.address.is_local))
        except ValueError:  # no name at all, such as one with half of the brackets of IPv6
            return True
        return not is_own or not ({*sites} <= {"none", "same-origin"} or _is_followed_link(request))

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


def _origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port; ValueError for what has none."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme)


def _is_digits(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_followed_link(request: Request) -> bool:
    """True for a link on a page of another origin, which cannot read the response."""
    headers = request.headers
    is_page = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
    return is_page and request.method in ("GET", "HEAD")


def _refused_type(request: Request) -> str | None:
    """The content type of a change that a page of another origin could send without asking (CORS); None for JSON.

    A request without a body needs no type: browsers name the origin of each.
    """
    if request.method in _READING:
        return None
    given = request.headers.getlist("content-type")
    if not given:
        has_body = "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"
        return "without a type" if has_body else None
    types = [one.partition(";")[0].strip().lower() for one in given]
    return next((one or "without a type" for one in types if not _JSON.fullmatch(one)), None)
