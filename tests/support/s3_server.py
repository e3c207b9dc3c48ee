"""An S3 server on loopback: S3Proxy over a folder, in a child process.

It checks signatures, and creates an object exclusively if a request asks for it: of many writers that put the same name
with `If-None-Match: *` one is served. Its jars come as Kafka's do, locked and verified.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx
from pyarrow import fs

from connectx.jvm import jars
from connectx.jvm.java import find_java
from connectx.jvm.process import ChildProcess
from connectx.kafka.broker import node
from tests.support.waiting import until

ACCESS_KEY: Final = "connectx-tests"
SECRET_KEY: Final = "Nobody/May+Read/This"
"""Must not be seen anywhere."""

_LOCK: Final = Path(__file__).with_name("s3proxy.lock.json")
_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOGBACK: Final = (
    '<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder>'
    '<pattern>%d %p %c{1}: %m%n</pattern></encoder></appender><root level="warn"><appender-ref ref="out"/></root>'
    "</configuration>"
)


class S3Server:
    """The server; `stop` and `start` keep its objects and its address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._java = find_java()
        (port,) = node.free_ports(1)
        self.address = f"{node.HOST}:{port}"
        self.endpoint = f"http://{self.address}"
        self._process: ChildProcess | None = None
        (folder / "objects").mkdir()
        (folder / "logback.xml").write_text(_LOGBACK)
        properties = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v4",
            "s3proxy.identity": ACCESS_KEY,
            "s3proxy.credential": SECRET_KEY,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(folder / "objects"),
        }
        (folder / "s3proxy.properties").write_text("".join(f"{key}={text}\n" for key, text in properties.items()))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        class_path = ":".join(str(path) for path in _jars())
        log_settings = f"-Dlogback.configurationFile={self._folder / 'logback.xml'}"
        self._process = ChildProcess(
            [str(self._java.java), *_OPTIONS, log_settings, "-cp", class_path, "org.gaul.s3proxy.Main", "--properties",
             str(self._folder / "s3proxy.properties")],
            self._folder / "log",
        )  # fmt: skip
        until(self._answers, "the S3 server")

    def stop(self) -> None:
        """Refuse connections."""
        assert self._process is not None, "it was started"
        self._process.kill()

    def files(self) -> fs.S3FileSystem:
        """Its objects, as pyarrow reads and writes them."""
        return fs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=self.address,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def _answers(self) -> bool:
        assert self._process is not None, "it was started"
        code = self._process.poll()
        assert code is None, f"the S3 server ended with {code}:\n{self._process.log_tail()}"
        try:
            return httpx.get(self.endpoint, timeout=5).status_code == httpx.codes.FORBIDDEN
        except httpx.HTTPError:
            return False


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server whose objects and settings are in this folder, until the block ends."""
    server = S3Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def storage(server: S3Server, **changed: str) -> dict[str, str]:
    """Settings of DeltaSink and ParquetSink, without `path`; `changed` has their names without storage."""
    given: Mapping[str, str] = {
        "aws_endpoint": server.endpoint,
        "aws_region": "us-east-1",
        "aws_access_key_id": ACCESS_KEY,
        "aws_secret_access_key": SECRET_KEY,
        "allow_http": "true",
    }
    return {f"storage.{name}": text for name, text in {**given, **changed}.items()}


def catalog(server: S3Server, database: Path, warehouse: str, **changed: str) -> dict[str, str]:
    """Settings of IcebergSink; `changed` has those of the storage, with underscores for - after s3."""
    given: Mapping[str, Any] = {
        "type": "sql",
        "uri": f"sqlite:///{database}",
        "warehouse": warehouse,
        "s3.endpoint": server.endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
    }
    more = {f"s3.{name.replace('_', '-')}": text for name, text in changed.items()}
    return {f"iceberg.catalog.{name}": text for name, text in {**given, **more}.items()}


def _jars() -> list[Path]:
    own = tuple(jars.Jar(**entry) for entry in json.loads(_LOCK.read_text())["s3proxy"])
    with patch.object(jars, "locked", lambda name: own):
        return jars.fetch("s3proxy", find_java())
