"""`connectx registry`: run a schema registry in the foreground."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from connectx.cli import worker_log
from connectx.cli.common import read_properties, reporting_errors


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
            typer.echo(f"The schema registry listens at {running.url} and keeps its schemas in topic {topic}.")
            ended.wait()
