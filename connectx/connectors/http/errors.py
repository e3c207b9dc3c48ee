"""Errors of web services that a sink sends records to."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class HttpError(ConnectxError):
    """A web service refuses the requests of a sink, and would refuse them again."""


class HttpLoginError(HttpError):
    """A token service gives a sink no token."""

    def __init__(self, place: str, cause: str) -> None:
        super().__init__(
            f"The token service {place} {cause}.",
            next_step="Correct oauth2.token.url, oauth2.client.id, oauth2.client.secret, oauth2.client.scope or "
            "oauth2.client.auth.mode, and restart the task.",
        )


class HttpUnavailableError(ConnectxError):
    """A web service cannot be reached now, or asks for the request to be sent again after `retry_after_ms`."""

    retriable = True

    def __init__(
        self,
        message: str,
        *,
        next_step: str = "Check that the service runs and is not overloaded; the task tries again.",
        retry_after_ms: int = 0,
    ) -> None:
        super().__init__(message, next_step=next_step)
        self.retry_after_ms = retry_after_ms


class RequestRefusedError(HttpError):
    """A web service refuses at least one record of a request. Never leaves a connector."""
