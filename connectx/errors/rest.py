"""Errors of REST: its listener, its answers and its clients."""

from __future__ import annotations

from collections.abc import Sequence

from connectx.errors.base import ConnectxError
from connectx.errors.machine import PortTakenError


class ListenerError(ConnectxError):
    """An address on which a server was to listen cannot be used."""


class ListenerTakenError(PortTakenError):
    """The port of the worker setting `listeners` belongs to another program."""

    def __init__(self, listener: str) -> None:
        ConnectxError.__init__(
            self,
            f"The address {listener} of the setting `listeners` is taken by another program.",
            next_step="Use port 0 for a free one, or stop that program.",
        )


class RestAuthError(ConnectxError):
    """The logins of REST cannot be read. The message names the file and never its content."""


class NoLoginError(RestAuthError):
    """A file of logins has none, or cannot be read."""

    code = "rest_no_login"


class RestTlsError(ConnectxError):
    """A certificate or key of REST's listeners cannot be used."""


class RestError(ConnectxError):
    """A worker refused a REST request. `status` is the HTTP status.

    `after_silence` is True when an earlier attempt of the same call got no answer, so it may have been carried out.
    """

    def __init__(self, message: str, *, status: int, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.status = status
        self.after_silence = False


class ConnectorNotFoundError(RestError):
    """The cluster has no connector, task or plugin of that name (404)."""

    code = "not_found"


class ConnectorExistsError(RestError):
    """A connector of that name is there already (409)."""


class ConfigRejectedError(RestError):
    """The configuration of a connector is invalid (400). `problems` has every message."""

    def __init__(self, message: str, problems: Sequence[str], *, next_step: str = "") -> None:
        super().__init__(message, status=400, next_step=next_step)
        self.problems = tuple(problems)


class RebalancePendingError(RestError):
    """The group is rebalancing, or its leader or the owner of the work is not known at the moment (409)."""

    retriable = True


class SignatureRefusedError(RestError):
    """The signature of a request between workers is wrong (403), usually because the session key has just changed."""

    retriable = True


class WorkerNotReadyError(RestError):
    """The worker is starting, has no session key yet, or has ended (503)."""

    retriable = True


class WorkersUnreachableError(ConnectxError):
    """No worker of the cluster answered."""

    retriable = True


class WaitTimeoutError(ConnectxError, TimeoutError):
    """An expected state was not reached in time."""

    retriable = True


class ConnectorFailedError(ConnectxError):
    """A connector or one of its tasks is FAILED while a call waits for another state. `trace` has the reason."""

    def __init__(self, message: str, trace: str, *, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.trace = trace


class CommandError(ConnectxError):
    """An argument of a command cannot be used."""
