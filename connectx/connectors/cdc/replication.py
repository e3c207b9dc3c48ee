"""A replication connection: its thread reads changes ahead of the task, and reports what is durable.

Decides how much is read ahead and when the server gets a status. The slot moves to what `confirm` was called with and
never further, so it is never ahead of the source offset.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectx.connectors.shared.postgres import SESSION, connect_error, identifier, literal, shown_place, typed_error
from connectx.errors.base import ConnectxError
from connectx.errors.databases import DatabaseError, DatabasePermissionError, DatabaseUnavailableError
from connectx.extras import require
from connectx.protocol import walsender
from connectx.protocol.pgoutput import COMMIT

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGconn, PGresult

_SILENT_S: Final = 60.0
"""A server that has not answered a status for so long is taken for dead."""

_FRAMES: Final = 10_000
"""After so many frames the thread hands over what is whole, and sends a status if one is due."""

_TLS_S: Final = 0.05
"""With TLS received bytes may wait in a buffer of the library, where the socket does not show them."""

_AGAIN: Final = "Check that the server runs; the task tries again."
_OR_SQL: Final = "or set slot.read.mode=sql"


class _Refusal(NamedTuple):
    """An error of the server, in the form of ADBC's errors."""

    sqlstate: str
    details: tuple[tuple[str, bytes], ...]


class ReplicationStream:
    """Changes of a slot from a position on.

    Args:
        uri: libpq URI.
        settings: run-time parameters of the connection.
        keys: the configuration keys that the URI comes from, for messages.
        slot: its name.
        publication: its name.
        most: about how many messages are read ahead.
        interval_s: how often the server gets a status.
    """

    def __init__(
        self,
        uri: str,
        settings: Mapping[str, str],
        keys: str,
        *,
        slot: str,
        publication: str,
        most: int,
        interval_s: float,
    ) -> None:
        self._uri = uri
        self._settings = settings
        self._keys = keys
        self._slot = slot
        self._publication = publication
        self._most = most
        self._interval_s = interval_s
        self._connection: Connection[Any] | None = None
        self._thread = threading.Thread(target=self._run, name=f"replication-{slot}", daemon=True)
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._changed = threading.Condition()
        self._ready: list[bytes] = []  # whole transactions that the task has not taken
        self._open: list[bytes] = []  # the thread's: what follows them
        self._confirmed = 0
        self._reached = 0
        self._error: ConnectxError | None = None
        self._ends = False

    def start(self, lsn: int, confirmed: int) -> None:
        """Connect, and begin with the transactions that commit after `lsn`; those up to `confirmed` are durable.

        Raises:
            DatabaseUnavailableError: the server cannot be reached, or the slot or all walsenders are in use.
            DatabasePermissionError, DatabaseError: the server does not allow it.
            MissingExtraError: psycopg is not installed.
        """
        self._confirmed = confirmed
        self._connection = connection = self._connected()
        pgconn = connection.pgconn
        for name, value in {**SESSION, **self._settings}.items():
            self._call(pgconn, f"SET {name} = {literal(value)}")
        options = f"proto_version '1', publication_names {literal(identifier(self._publication))}"
        place = f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
        self._call(pgconn, f"START_REPLICATION SLOT {identifier(self._slot)} LOGICAL {place} ({options})")
        pgconn.nonblocking = 1
        self._thread.start()

    def take(self) -> tuple[list[bytes], int]:
        """Frames of whole transactions, and if there are none the LSN that all commits before were taken of.

        Raises:
            DatabaseUnavailableError: the connection has ended.
            DatabaseError: the server ended it because of an error.
        """
        with self._changed:
            if self._error is not None and not self._ready:
                raise self._error
            frames, self._ready = self._ready, []
            reached = self._reached
        if len(frames) >= self._most:
            self._wake()
        return frames, reached

    def wait(self, timeout_s: float) -> None:
        """Wait until there is something to take."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._error is not None, timeout_s)

    def confirm(self, lsn: int) -> None:
        """The server may drop what the slot keeps before `lsn`."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self._wake()

    def close(self) -> None:
        """Report what was confirmed last, and end connection and thread."""
        self._ends = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        if self._connection is not None:
            self._connection.close()
        self._waker.close()
        self._woken.close()

    def _connected(self) -> Connection[Any]:
        require("slot.read.mode=stream", "postgres", "psycopg")
        import psycopg

        try:
            return psycopg.connect(self._uri, autocommit=True, replication="database")
        except psycopg.Error as error:
            raise refused_connection(str(error), self._uri, self._keys) from None  # the text may repeat the password

    def _call(self, pgconn: PGconn, command: str) -> None:
        from psycopg.pq import ExecStatus

        result = pgconn.exec_(command.encode())
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.COPY_BOTH):
            error = self._error_of(result, command)
            pgconn.finish()
            raise error

    def _error_of(self, result: PGresult | None, command: str) -> ConnectxError:
        from psycopg.pq import DiagnosticField

        if result is None:
            return self._lost("it ended")
        state = result.error_field(DiagnosticField.SQLSTATE)
        reason = result.error_field(DiagnosticField.MESSAGE_PRIMARY)
        if state is None or reason is None:
            return self._lost("it ended")
        if state == b"42601":
            return _no_walsender(self._uri, reason.decode("utf-8", "replace"))
        return typed_error(
            _Refusal(state.decode(), (("PG_DIAG_MESSAGE_PRIMARY", reason),)), command, shown_place(self._uri)
        )

    def _lost(self, reason: str) -> DatabaseUnavailableError:
        place = shown_place(self._uri)
        return DatabaseUnavailableError(f"The replication connection to {place} is lost: {reason}.", next_step=_AGAIN)

    def _run(self) -> None:
        assert self._connection is not None, "start connects"
        pgconn = self._connection.pgconn
        try:
            self._read(pgconn)
        except ConnectxError as error:
            self._fail(error)
        except Exception as error:
            self._fail(self._lost(str(error).strip().split("\n")[0]))

    def _fail(self, error: ConnectxError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _read(self, pgconn: PGconn) -> None:
        sent_s = received_s = time.monotonic()
        sent = self._confirmed
        asked = True
        while not self._ends:
            now_s = time.monotonic()
            if asked or self._confirmed > sent or now_s >= sent_s + self._interval_s:
                sent, sent_s = self._send_status(pgconn), now_s
            has_room = len(self._ready) < self._most
            if not has_room:
                received_s = now_s
            asked, has_more = self._take_frames(pgconn) if has_room else (False, False)
            if asked or has_more:
                received_s = now_s
                continue
            sources: list[socket.socket | int] = [self._woken, pgconn.socket] if has_room else [self._woken]
            left_s = max(0.0, sent_s + self._interval_s - now_s)
            found = wait(sources, min(left_s, _TLS_S) if pgconn.ssl_in_use else left_s)
            if self._woken in found:
                self._woken.recv(4096)
            if has_room:  # otherwise the library would read ahead of the task without a limit
                pgconn.consume_input()
            if pgconn.socket in found:
                received_s = time.monotonic()
            elif now_s > received_s + _SILENT_S + self._interval_s:
                raise self._lost(f"the server has not answered for {_SILENT_S:.0f} s")
        if self._confirmed > sent:
            self._send_status(pgconn)

    def _send_status(self, pgconn: PGconn) -> int:
        lsn = self._confirmed
        pgconn.put_copy_data(walsender.status(lsn, time.time_ns() // 1000))
        pgconn.flush()
        return lsn

    def _take_frames(self, pgconn: PGconn) -> tuple[bool, bool]:
        """Take what was received; returns whether the server asks for a status, and whether there may be more."""
        get, frames, asked, reached = pgconn.get_copy_data, self._open, False, 0
        add, whole, size = frames.append, 0, 0
        for _ in range(_FRAMES):
            size, received = get(1)
            if size <= 0:
                break
            frame = bytes(received)
            if frame[0] == walsender.DATA:
                add(frame)
                if frame[walsender.HEADER_BYTES] == COMMIT:
                    whole = len(frames)
            else:
                lsn, asks = walsender.keepalive(frame)
                asked |= asks
                if whole == len(frames):
                    reached = lsn
        if whole or reached:
            with self._changed:
                self._ready += frames[:whole]
                self._reached = max(self._reached, reached)
                self._changed.notify_all()
            del frames[:whole]
        if size < 0:
            raise self._error_of(pgconn.get_result(), "START_REPLICATION")
        return asked, size > 0

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # it is awake
            self._waker.send(b"\0")


def refused_connection(message: str, uri: str, keys: str) -> ConnectxError:
    """What the text of a failed replication connection means."""
    reason = message.partition("FATAL:")[2].strip().split("\n")[0]
    if re.search(r"WAL sender|replication role|max_wal_senders|wal senders", reason, re.IGNORECASE):
        if "max_wal_senders" in reason:
            return DatabaseUnavailableError(
                f"PostgreSQL at {shown_place(uri)} has no walsender left: {reason}.",
                next_step=f"Raise max_wal_senders, end other replication connections, {_OR_SQL}; the task tries again.",
            )
        return DatabasePermissionError(
            f"PostgreSQL at {shown_place(uri)} refuses a replication connection: {reason}.",
            next_step=f"Give the role of database.user the attribute REPLICATION, {_OR_SQL}, and restart the task.",
        )
    if re.search(r"unsupported startup parameter|replication connection|not supported", reason, re.IGNORECASE):
        return _no_walsender(uri, reason)
    return connect_error(message, uri, keys)


def _no_walsender(uri: str, reason: str) -> DatabaseError:
    return DatabaseError(
        f"{shown_place(uri)} takes no replication connection: {reason}.",
        next_step="If it is a connection pooler, name the server itself in database.hostname and database.port; if "
        f"pg_hba.conf forbids it, allow it; {_OR_SQL}; then restart the task.",
    )
