"""Errors of REST: its listener, its answers and its clients."""

from __future__ import annotations

from collections.abc import Sequence

from connectx.errors.base import ConnectxError
from connectx.errors.machine import PortTakenError


class ListenerError(ConnectxError):
    """An address on which a server was to listen cannot be used."""

    code = "listener"


class ListenerTakenError(PortTakenError):
    """The port of the worker setting `listeners` belongs to another program."""

    code = "listener_taken"

    def __init__(self, listener: str) -> None:
        ConnectxError.__init__(
            self,
            f"The address {listener} of the setting `listeners` is taken by another program.",
            next_step="Use port 0 for a free one, or stop that program.",
        )


class RestAuthError(ConnectxError):
    """The logins of REST cannot be read. The message names the file and never its content."""

    code = "rest_auth"


class RestTlsError(ConnectxError):
    """A certificate or key of REST's listeners cannot be used."""

    code = "rest_tls"


class RestError(ConnectxError):
    """A worker refused a REST request. `status` is the HTTP status.

    `after_silence` is True when an earlier attempt of the same call got no answer, so it may have been carried out.
    """

    code = "rest"

    def __init__(self, message: str, *, status: int, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.status = status
        self.after_silence = False


class ConnectorNotFoundError(RestError):
    """The cluster has no connector, task or plugin of that name (404)."""

    code = "not_found"


class ConnectorExistsError(RestError):
    """A connector of that name is there already (409)."""

    code = "connector_exists"


class ConfigRejectedError(RestError):
    """The configuration of a connector is invalid (400). `problems` has every message."""

    code = "config_rejected"

    def __init__(self, message: str, problems: Sequence[str], *, next_step: str = "") -> None:
        super().__init__(message, status=400, next_step=next_step)
        self.problems = tuple(problems)


class RebalancePendingError(RestError):
    """The group is rebalancing, or its leader or the owner of the work is not known at the moment (409)."""

    code = "rebalance_pending"
    retriable = True


class SignatureRefusedError(RestError):
    """The signature of a request between workers is wrong (403), usually because the session key has just changed."""

    code = "signature_refused"
    retriable = True


class WorkerNotReadyError(RestError):
    """The worker is starting, has no session key yet, or has ended (503)."""

    code = "worker_not_ready"
    retriable = True


class WorkersUnreachableError(ConnectxError):
    """No worker of the cluster answered."""

    code = "workers_unreachable"
    retriable = True


class WaitTimeoutError(ConnectxError, TimeoutError):
    """An expected state was not reached in time."""

    code = "wait_timeout"
    retriable = True


class ConnectorFailedError(ConnectxError):
    """A connector or one of its tasks is FAILED while a call waits for another state. `trace` has the reason."""

    code = "connector_failed"

    def __init__(self, message: str, trace: str, *, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.trace = trace


class CommandError(ConnectxError):
    """An argument of a command cannot be used."""

    code = "command"
