"""Errors of sources and sinks of Spark's formats."""

from __future__ import annotations

from connectx.connectors.shared.errors import LakeError
from connectx.errors.base import ConnectxError


class TableRewrittenError(LakeError):
    """A table in files has lost the version, snapshot or files that a source would read next."""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(
            f"{name} cannot be read further: {cause}.",
            next_step="Stop the connector and reset its offsets to read the table as it is now. Keep versions longer.",
        )


class TableChangedError(LakeError):
    """A table in files has a commit that deletes or updates rows, which a source of added rows cannot read."""

    def __init__(self, name: str, where: str, operation: str) -> None:
        super().__init__(
            f"{name} has rows deleted or updated in {where} ({operation}), and this source reads only added rows.",
            next_step="Set skip.change.commits=true to leave out all rows of such commits, and restart the task.",
        )


class SparkFormatError(ConnectxError):
    """Spark has no reader or writer for a format."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Spark does not know the format {name}.",
            next_step="Correct `format`, or add the library that brings it to your Spark, and restart the task.",
        )


class JdbcDriverError(ConnectxError):
    """Spark has no JDBC driver for a database."""

    def __init__(self) -> None:
        super().__init__(
            "Spark finds no JDBC driver for the URL of the database.",
            next_step="Set format.options.driver to the class of the driver, for example org.postgresql.Driver. Add "
            "its jar to your Spark, for example with spark.jars, and restart the task.",
        )


class OffsetColumnError(ConnectxError):
    """A column of a source cannot be its offset."""

    def __init__(self, column: str, where: str, cause: str) -> None:
        super().__init__(
            f"{column} in {where} cannot be the offset: {cause}.",
            next_step="Correct `offset.columns` or the rows, and restart the task; its position is kept.",
        )


class ReadLimitError(ConnectxError):
    """A stream reader is written for limits of Spark 4.2, and the installed pyspark has none."""

    def __init__(self, reader: str) -> None:
        super().__init__(
            f"latestOffset of {reader} takes a limit, which this pyspark does not have.",
            next_step="Use Spark 4.2 or later, or define getDefaultReadLimit in the reader, and restart the task.",
        )


class DataSourceWriteError(ConnectxError):
    """The writer of a PySpark DataSource, a format of Spark or a function has failed."""

    def __init__(self, source: str, cause: Exception) -> None:
        super().__init__(
            f"{source} could not write: {type(cause).__name__}: {(str(cause).splitlines() or [''])[0]}",
            next_step="Correct the cause and restart the task: it writes records after the committed offsets again.",
        )
