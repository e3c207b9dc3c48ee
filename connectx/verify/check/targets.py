"""A target that a user names: a file, a data frame, rows, a table of a database, or a function that returns one.

Decides what rows it has: lines of text, or fields by name. It never writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectx.errors.checks import CheckError
from connectx.plugins.stored import Stored

if TYPE_CHECKING:
    import pyarrow as pa

_DATABASE: Final = re.compile(r"(jdbc:)?(postgres(ql)?|sqlite|duckdb|mysql|mariadb):")
GIVEN_ROWS: Final = "the given rows"


def target_of(given: Any) -> Stored:
    """What a user means by a target.

    Raises:
        CheckError: nothing that can be read.
        TableMissingError, DatabaseError: a table that cannot be read.
    """
    if isinstance(given, Stored):
        return given
    if callable(given):
        return _of_function(given)
    if isinstance(given, (tuple, list)) and len(given) == 2 and _DATABASE.match(str(given[0])):
        from connectx.connectors.jdbc.sink import table_of

        return table_of(str(given[0]), str(given[1]))
    if isinstance(given, (str, Path)):
        return _of_path(Path(given))
    return _of_rows(given)


def _of_function(function: Callable[[], Any]) -> Stored:
    place = f"what {getattr(function, '__name__', 'a function')} returns"
    return replace(target_of(function()), place=place, read=lambda: target_of(function()).read())


def _of_path(path: Path) -> Stored:
    if not path.exists():
        raise CheckError(f"The target {path} does not exist.", next_step="Name a file, or another target.")
    place = f"file {path.name}"
    if path.suffix not in (".parquet", ".csv") and not path.is_dir():
        from connectx.connectors.files.stream_sink import read_lines

        return Stored(place, lambda: read_lines(str(path)), lines=True, ordered=True)

    def read() -> Iterator[pa.Table]:
        import pyarrow as pa
        import pyarrow.dataset as ds

        for batch in ds.dataset(path, format="csv" if path.suffix == ".csv" else "parquet").to_batches():
            yield pa.Table.from_batches([batch])

    return Stored(place, read)


def _of_rows(given: Any) -> Stored:
    """A pandas, Arrow or Spark table, or an iterable of mappings or of texts."""
    import pyarrow as pa

    if hasattr(given, "toArrow"):  # a Spark DataFrame
        return Stored(GIVEN_ROWS, lambda: iter([given.toArrow()]))
    table: Any = given
    lines = False
    if hasattr(given, "to_dict") and hasattr(given, "columns"):  # a pandas DataFrame
        table = pa.Table.from_pandas(given, preserve_index=False)
    elif isinstance(given, Iterable) and not isinstance(given, (Mapping, pa.Table)):
        rows = list(given)
        lines = not rows or isinstance(rows[0], str)
        table = pa.table({"line": pa.array(rows, pa.string())}) if lines else pa.Table.from_pylist(rows)
    if not isinstance(table, pa.Table):
        raise CheckError(
            f"A target of type {type(given).__name__} cannot be read.",
            next_step="Give a path, a data frame, rows, (URL, table) of a database, or a function that returns one.",
        )
    return Stored(GIVEN_ROWS, lambda: iter([table]), lines=lines, ordered=lines)
