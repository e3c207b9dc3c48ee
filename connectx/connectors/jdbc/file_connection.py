"""The connection of a database that is a file."""

from __future__ import annotations

from typing import Any


class FileConnection:
    """A connection that is made when first used; mixed into databases and targets."""

    _connection: Any = None

    def close(self) -> None:
        """Drop the connection; an open transaction is rolled back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
