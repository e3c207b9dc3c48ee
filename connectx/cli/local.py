"""Commands about this machine: `setup`, `registry`, `ui` and `doctor`."""

from __future__ import annotations

import json
import signal
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from html import escape
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from connectx.api.connect_cluster import panel_factory
from connectx.cli import worker_log
from connectx.cli.common import FAILED, At, read_properties, reporting_errors
from connectx.cli.output import print_safely
from connectx.jvm import jars
from connectx.jvm.archive import archives_lock
from connectx.jvm.java import JavaHome, find_java
from connectx.jvm.progress import Progress, silent, step, terminal_progress
from connectx.kafka.broker import embedded, node
from connectx.owned_files import owned_file
from connectx.spark import launcher, sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def setup(
    archives: Annotated[
        bool, typer.Option("--archives", help="Make Spark's class archive now, in about a minute, instead of later.")
    ] = False,
) -> None:
    """Download the jars of Kafka and prepare fast starts. A second run takes a moment."""
    with reporting_errors(), terminal_progress() as progress:
        prepare(progress, archives=archives)


def prepare(progress: Progress = silent, java: JavaHome | None = None, *, archives: bool = False) -> None:
    """Fetch the jars and make class archives, as far as they are not in the cache.

    Args:
        progress: called for each step.
        java: the Java to prepare for; `find_java()` by default.
        archives: Spark's class archive, too.

    Raises:
        MissingExtraError, NoJavaError, JarDownloadError, ChecksumError, DiskFullError: what is needed cannot be had.
        BrokerError, SparkStartError: a part does not start on this machine.
    """
    java = java or find_java()
    kafka_jars = jars.fetch(jars.KAFKA, java, progress)
    spark_jars = launcher.class_path()
    if not node.archive_path(java, kafka_jars).exists():
        with step(progress, "Making Kafka start fast"), archives_lock():
            embedded.make_archive(java, kafka_jars)
    if archives and not launcher.archive_path(java, spark_jars).exists():
        with step(progress, "Making Spark start fast"):
            sessions.make_archive(java, _typical_work)


def _typical_work(spark: SparkSession) -> None:
    """Load the classes that connectx's own queries need: Arrow in and out, Python on executors."""
    import pyarrow as pa

    rows = spark.createDataFrame(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    texts = rows.selectExpr("to_json(struct(*)) AS value", "upper(name) AS key")
    texts.toArrow()
    texts.selectExpr("from_json(value, 'id BIGINT') AS value").toArrow()
    rows.mapInArrow(lambda batches: batches, rows.schema).toArrow()


def registry(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE.properties", help="Settings of the connection to Kafka, as in a worker's file."),
    ] = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="host:port of Kafka; overrides the file.")] = None,
    listener: Annotated[str, typer.Option(help="URL at which the REST API listens.")] = "http://127.0.0.1:8081",
    topic: Annotated[str, typer.Option(help="Topic that keeps schemas and settings.")] = "_schemas",
) -> None:
    """Run a schema registry with Confluent's REST API until SIGTERM or SIGINT.

    It has no logins and no TLS, and listens on 127.0.0.1 unless another host is named.
    """
    from connectx.model.worker_config import own_kafka_config
    from connectx.plugins.registry import worker_config
    from connectx.schema_registry.server import SchemaRegistry

    worker_log.to_stderr(worker_log.Level.INFO)
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    with reporting_errors():
        given = {} if file is None else read_properties(file)
        given |= {} if bootstrap_servers is None else {"bootstrap.servers": bootstrap_servers}
        with SchemaRegistry(worker_config(own_kafka_config(given)), listener=listener, topic=topic) as running:
            for one in (signal.SIGTERM, signal.SIGINT):
                signal.signal(one, end)
            print_safely(f"The schema registry listens at {running.url} and keeps its schemas in topic {topic}.")
            ended.wait()


_LOOPBACK: Final = "127.0.0.1"


def ui(
    at: At,
    address: Annotated[str | None, typer.Argument(metavar="[URL]", help="Address of any worker, like --url.")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Remove every button that changes something.")] = False,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Beyond loopback nothing is encrypted, and the link is the login.")
    ] = _LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Serve the panel of a notebook as a page in the browser, until Ctrl-C.

    Works with workers of connectx and of Kafka Connect. The page needs the token in the printed link. The login to the
    workers stays in this process.
    """
    at.url = address or at.url
    try:
        with panel_factory("page")(at.cluster, host=host, port=port, read_only=read_only) as page:
            at.show({"url": page.url}, f"The panel is at {page.url}\nPress Ctrl-C to end it. The cluster continues.")
            with link_of_owner(page.url) if browser else nullcontext() as link:
                if link is not None:
                    webbrowser.open(link.as_uri())
                page.wait()
    except KeyboardInterrupt:
        return


@contextmanager
def link_of_owner(url: str) -> Iterator[Path]:
    """A page that leads to a URL and that only this user can read: any user can read a browser's command line."""
    link = escape(url, quote=True)
    with tempfile.TemporaryDirectory(prefix="connectx-ui-") as folder:  # mode 0700
        path = Path(folder) / "panel.html"
        with owned_file(path) as file:
            file.write(
                '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
                f'<meta http-equiv="refresh" content="0; url={link}"><title>connectx</title>'
                f'<a href="{link}" rel="noreferrer">Open the panel</a>\n'
            )
        yield path


def doctor(
    bootstrap_servers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Your own Kafka; by default the embedded one is checked.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE.properties", help="Worker settings, such as logins.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report what works on this machine and with this Kafka, what does not and why, and what to type next.

    It starts and changes nothing. The exit code is 1 when a cluster cannot run.
    """
    from connectx.verify.doctor.doctor import doctor as check_up

    with reporting_errors():
        settings: dict[str, Any] = {} if file is None else read_properties(file)
        found = check_up(bootstrap_servers=bootstrap_servers, config=settings)
    print_safely(json.dumps(found.as_json()) if as_json else repr(found))
    if not found.ok:
        raise typer.Exit(FAILED)
