"""How a line of text becomes a row: CSV and JSON lines as Spark column expressions.

Decides what a malformed line is (Spark's from_csv and from_json do, in permissive mode with a corrupt-record column);
never reads a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from connectx.errors.plugins import ConfigError
from connectx.values import Value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

LINE = "line"
_CORRUPT = "_corrupt_record"
_PARSED = "parsed"


class LineFormat(Value):
    """A file's format as configured; `schema` is Spark DDL. `is_multiline`: a line may hold line feeds in quotes."""

    format: str
    schema: str
    delimiter: str = ","
    null_text: str = ""
    key_fields: Sequence[str] = ()
    is_multiline: bool = False

    def parse(self, lines: DataFrame, *, skip_malformed: bool) -> DataFrame:
        """Rows with the column `value` (a struct) and, with key fields, `key`; blank lines are left out.

        A malformed line is left out, or makes the Spark job fail.
        """
        from pyspark.sql import functions as F

        if skip_malformed:
            parsed = self._parsed(lines).where(~_malformed(self.format))
            rows = parsed.select(F.col(_PARSED).dropFields(_CORRUPT).alias("value"))
        else:
            # Spark's own check keeps the plan small: planning costs as much as parsing 20,000 lines.
            rows = _without_blanks(lines).select(self._expression(_object_text(self.format), "FAILFAST").alias("value"))
        return rows.select(self._key().alias("key"), "value") if self.key_fields else rows

    def first_malformed(self, lines: DataFrame, order: str) -> tuple[int, str] | None:
        """The lowest value of column `order` among malformed lines, with the line's text."""
        found = self._parsed(lines, order).where(_malformed(self.format)).orderBy(order).select(order, LINE).head(1)
        return (found[0][0], found[0][1]) if found else None

    def check(self, spark: SparkSession) -> None:
        """ConfigError for a schema that Spark cannot read or that lacks a key field."""
        names = schema_of(spark, self.schema).fieldNames()
        missing = [name for name in self.key_fields if name not in names]
        if missing:
            raise ConfigError(
                [f"Invalid value {missing[0]} for configuration key.fields: the schema has no such field"]
            )

    @property
    def csv_options(self) -> dict[str, str]:
        """Options of Spark's from_csv."""
        quoted = {"multiLine": "true", "escape": '"'} if self.is_multiline else {}
        return {"sep": self.delimiter, "nullValue": self.null_text, **quoted}

    def with_schema(self, schema: str) -> LineFormat:
        """The same format with another schema."""
        return replace(self, schema=schema)

    def _parsed(self, lines: DataFrame, *extra: str) -> DataFrame:
        """The parsed form of every line, malformed ones included."""
        from pyspark.sql import functions as F

        return _without_blanks(lines).select(*extra, LINE, self._expression(F.col(LINE), "PERMISSIVE").alias(_PARSED))

    def _expression(self, text: Column, mode: str) -> Column:
        from pyspark.sql import functions as F

        schema, options = self.schema, {"mode": mode}
        if mode == "PERMISSIVE":
            schema, options = f"{schema}, {_CORRUPT} STRING", {**options, "columnNameOfCorruptRecord": _CORRUPT}
        if self.format == "csv":
            return F.from_csv(text, schema, {**options, **self.csv_options})
        return F.from_json(text, schema, options)

    def _key(self) -> Column:
        from pyspark.sql import functions as F

        fields = [F.col(f"value.`{name}`").alias(name) for name in self.key_fields]
        return fields[0] if len(fields) == 1 else F.struct(*fields)


def _without_blanks(lines: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return lines.where(F.trim(LINE) != "")


def _is_object(text_format: str) -> Column:
    """A JSON line has to be an object: from_json takes null and arrays, too."""
    from pyspark.sql import functions as F

    return F.lit(True) if text_format == "csv" else F.ltrim(LINE).startswith("{")


def _object_text(text_format: str) -> Column:
    from pyspark.sql import functions as F

    if text_format == "csv":
        return F.col(LINE)
    return F.when(_is_object(text_format), F.col(LINE)).otherwise(F.raise_error(F.lit("not a JSON object")))


def _malformed(text_format: str) -> Column:
    """True for a line that does not fit, of what LineFormat._parsed gives."""
    from pyspark.sql import functions as F

    corrupt = F.col(f"{_PARSED}.{_CORRUPT}").isNotNull()
    return F.col(_PARSED).isNull() | corrupt | ~_is_object(text_format)


def schema_of(spark: SparkSession, ddl: str) -> StructType:
    """A DDL schema as Spark understands it. ConfigError when it does not."""
    from pyspark.errors import PySparkException

    try:
        return spark.createDataFrame([], ddl).schema
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError([f"Invalid value {ddl} for configuration schema: Spark cannot read it ({reason})"]) from error


def infer_schema(
    spark: SparkSession,
    line_format: LineFormat,
    names: Sequence[str],
    lines: Sequence[str],
    type_of: Callable[[Sequence[str]], str],
) -> str:
    """A DDL schema from sample lines; for CSV with the header's names, or `_c0`, `_c1`, ...

    Args:
        type_of: type of a column of CSV with these texts.
    """
    if line_format.format == "json":
        return _infer_json(spark, lines)
    sample = spark.createDataFrame([(line,) for line in lines], f"{LINE} STRING")
    return _infer_csv(sample, line_format, names, type_of)


def _infer_json(spark: SparkSession, lines: Sequence[str]) -> str:
    from pyspark.sql import functions as F

    found = spark.range(1).select(F.schema_of_json(F.lit("[" + ",".join(lines) + "]"))).head()
    assert found is not None, "a range of one row has one row"
    ddl = str(found[0])
    if not ddl.startswith("ARRAY<STRUCT<"):
        raise ConfigError(["Invalid value null for configuration schema: the file's lines are not JSON objects"])
    inner = schema_of(spark, ddl.removeprefix("ARRAY<STRUCT<").removesuffix(">>"))
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in inner.fields)


def _infer_csv(
    sample: DataFrame, line_format: LineFormat, names: Sequence[str], type_of: Callable[[Sequence[str]], str]
) -> str:
    from pyspark.sql import functions as F

    texts = ", ".join(f"`{name}` STRING" for name in names)
    rows = sample.select(F.from_csv(LINE, texts, line_format.csv_options).alias(_PARSED)).collect()
    columns = zip(*(row[0] for row in rows if row[0] is not None), strict=True)
    found = [type_of([text for text in column if text is not None]) for column in columns]
    return ", ".join(f"`{name}` {kind}" for name, kind in zip(names, found, strict=True))
