"""The log of a Delta Lake table: one JSON file for each version, which names the files that were added and removed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from connectx.connectors.shared.errors import LakeError
from connectx.connectors.shared.storage import storage_errors, store_of, url_of
from connectx.connectors.spark.errors import TableChangedError, TableRewrittenError
from connectx.connectors.spark.tables import Commit, ReadFile, TableFile, common_schema, in_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable

_SETTING: Final = "format.options.path"


class DeltaLog:
    """Versions of a table; a `connectx.connectors.spark.tables.TableLog`.

    Args:
        path: of the table, a directory or a URL.
        storage: options of the storage library.
        skip_changes: leave out versions that delete or update rows.
    """

    format = "delta"
    unit = "version"

    def __init__(self, path: str, storage: Mapping[str, str], *, skip_changes: bool) -> None:
        self.name = f"The table {path}"
        self.place = path
        self._url = url_of(path)
        self._storage = dict(storage)
        self._skips = skip_changes
        self._table: DeltaTable | None = None

    def newest(self) -> int:
        """The last version.

        Raises:
            LakeError: there is no table, or the library cannot read it.
            LakeUnavailableError: the storage cannot be reached.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with self.errors():
            try:
                if self._table is None:
                    self._table = DeltaTable(self._url, storage_options=self._storage)
                else:
                    self._table.update_incremental()
            except TableNotFoundError as error:
                raise LakeError(
                    f"{self.name} does not exist.", next_step=f"Create it, or correct {_SETTING}, and restart the task."
                ) from error
            return self._table.version()

    def contents(self, number: int) -> Commit:
        """All files of a version, by name.

        Raises:
            TableRewrittenError: the log does not reach back to it.
        """
        actions = pa.table(self._at(number).get_add_actions())
        files = [
            TableFile(unquote(path), size)
            for path, size in zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
        ]
        return self._commit(number, sorted(files, key=lambda file: str(file.entry)))

    def commit(self, number: int) -> Commit:
        """Files that a version added as new rows.

        Raises:
            TableRewrittenError: the log does not reach back to it.
            TableChangedError: it deletes or updates rows.
        """
        files, changes, operation = [], False, ""
        for kind, action in self._actions(number):
            operation = action.get("operation", operation) if kind == "commitInfo" else operation
            if kind in ("add", "remove") and action.get("dataChange", True):
                changes = changes or kind == "remove" or bool(action.get("deletionVector"))
                files += [TableFile(unquote(action["path"]), action["size"])] if kind == "add" else []
        if changes and not self._skips:
            raise TableChangedError(self.name, f"version {number}", operation or "no operation is named")
        return self._commit(number, [] if changes else files)

    def following(self, number: int) -> int | None:
        """The next version, if the table has it."""
        known = -1 if self._table is None else self._table.version()
        newest = known if number < known else self.newest()
        if number > newest:
            raise TableRewrittenError(self.name, f"it is at version {newest}, and version {number} was already read")
        return number + 1 if number < newest else None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the library and of the storage; a missing file was removed by VACUUM."""
        from deltalake.exceptions import DeltaError, DeltaProtocolError
        from obstore.exceptions import BaseError

        final = (DeltaProtocolError, ValueError, pa.ArrowInvalid)
        with storage_errors(self.name, _SETTING, later=(DeltaError, BaseError), final=final):
            try:
                yield
            except FileNotFoundError as error:
                raise TableRewrittenError(self.name, "a data file that its log names was removed") from error

    def _commit(self, number: int, files: list[TableFile]) -> Commit:
        if not files:
            return Commit(number)
        with self.errors():
            schema = pa.schema(self._at(number).schema().to_arrow())
        return Commit(number, tuple(files), DeltaFiles(self._url, self._storage, number, common_schema(schema)))

    def _at(self, number: int) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, DeltaProtocolError

        if self._table is not None and self._table.version() == number:
            return self._table
        with self.errors():
            try:
                return DeltaTable(self._url, version=number, storage_options=self._storage)
            except DeltaProtocolError:
                raise
            except DeltaError as error:
                self._check_gone(number, error)
                raise

    def _actions(self, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """The actions of a version, as its file in the log has them."""
        from obstore import get

        with self.errors():
            try:
                data = bytes(get(store_of(self._url, self._storage), f"_delta_log/{number:020}.json").bytes())
            except FileNotFoundError as error:
                raise TableRewrittenError(self.name, f"its log has no version {number} any more") from error
        for line in data.splitlines():
            yield from json.loads(line).items()

    def _check_gone(self, number: int, error: Exception) -> None:
        """Raise TableRewrittenError if the table is there, but not this version."""
        if number <= self.newest():
            raise TableRewrittenError(self.name, f"its log has no version {number} any more") from error


@dataclass(frozen=True)
class DeltaFiles:
    """Reads files of a version; a `connectx.connectors.spark.tables.Files`."""

    url: str
    storage: Mapping[str, str]
    version: int
    schema: pa.Schema

    def open(self) -> ReadFile:
        """The files as the table has them at this version, with the values of partition columns."""
        from deltalake import DeltaTable

        dataset = DeltaTable(self.url, version=self.version, storage_options=dict(self.storage)).to_pyarrow_dataset()
        fragments = {fragment.path: fragment for fragment in dataset.get_fragments()}
        return lambda path: in_schema(fragments[path].to_batches(schema=dataset.schema), self.schema)
