"""Adds the headers of `response.http.headers.config` to each response of a worker's REST server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from email.utils import formatdate

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from connectx.model.header_rules import HeaderRule


class ResponseHeaders:
    """An application with further headers in its responses."""

    def __init__(self, app: ASGIApp, rules: Sequence[HeaderRule]) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add(MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, with_headers)

    def _add(self, headers: MutableHeaders) -> None:
        for rule in self._rules:
            value = formatdate(time.time() + int(rule.value) / 1000, usegmt=True) if rule.is_date else rule.value
            if rule.replaces:
                headers[rule.name] = value
            else:
                headers.append(rule.name, value)
