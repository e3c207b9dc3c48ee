"""PySpark data sources that write rows as lines of JSON: into files that count when their writer commits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage


@dataclass
class Written(WriterCommitMessage):
    path: str


class JsonLines(DataSource):
    """Options: `folder`; with `fails` set to write or commit, the first of these calls of a folder fails."""

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return LinesWriter(Path(self.options["folder"]), self.options.get("fails"))


class ArrowJsonLines(JsonLines):
    """Takes record batches."""

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return ArrowLinesWriter(Path(self.options["folder"]), self.options.get("fails"))


class ReadOnly(DataSource):
    """Has no writer."""


class LinesWriter(DataSourceWriter):
    def __init__(self, folder: Path, fails: str | None) -> None:
        self._folder, self._fails = folder, fails

    def write(self, iterator: Iterator[Row]) -> Written:
        return self._written([row.asDict(recursive=True) for row in iterator])

    def commit(self, messages: list[Any]) -> None:
        self._fail("commit")
        for message in messages:
            path = Path(message.path)
            path.rename(path.with_suffix(".json"))

    def abort(self, messages: list[Any]) -> None:
        for message in messages:
            if message is not None:
                Path(message.path).unlink(missing_ok=True)

    def _written(self, rows: list[dict[str, Any]]) -> Written:
        self._fail("write")
        path = self._folder / f"{uuid4().hex}.staged"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return Written(str(path))

    def _fail(self, what: str) -> None:
        if self._fails == what and not (self._folder / "failed").exists():
            (self._folder / "failed").touch()
            raise OSError("the disk is full")


class ArrowLinesWriter(LinesWriter, DataSourceArrowWriter):
    def write(self, iterator: Iterator[Any]) -> Written:
        return self._written([row for batch in iterator for row in batch.to_pylist()])


def lines_in(folder: Path, suffix: str = "json") -> list[dict[str, Any]]:
    """Rows that were committed; with `staged` those that were not."""
    return [json.loads(line) for path in folder.glob(f"*.{suffix}") for line in path.read_text().splitlines()]


def named(source: type[DataSource]) -> str:
    """As a setting."""
    return f"{source.__module__}.{source.__qualname__}"
