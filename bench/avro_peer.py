"""AvroConverter and Apicurio's converter for Kafka Connect in turns: same records, registry, workers and guarantee.

`python -m bench avro_peer`. Apicurio's converter writes Confluent's wire format (`apicurio.registry.as-confluent`), but
asks its own REST API for schemas, so that a facade of the cluster's registry answers it. A schema is asked for once.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import httpx

from bench import flows
from bench.peer import FileSinkRun, FileSourceRun, both_sides, rates
from bench.plugins import plugin_folder
from connectx.kafka.broker import node
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.worker_config import WorkerConfig
from connectx.schema_registry.server import SchemaRegistry
from tests.support.java_worker import peer_config

_JARS: Final = "apicurio-converter"
_DISCOVERY: Final = "hybrid_warn"
"""The converter's jar names no services."""

_AS_STRUCTS: Final = {
    "transforms": "hoist,add",
    "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.hoist.field": "line",
    "transforms.add.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.add.topic.field": "topic",
    "transforms.add.static.field": "site",
    "transforms.add.static.value": "Berlin",
}
_AS_LINES: Final = {
    "transforms": "line",
    "transforms.line.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
    "transforms.line.field": "line",
}


@contextmanager
def _apicurio(registry_url: str) -> Iterator[str]:
    """The part of Apicurio's REST API (v2) that its converter uses, over a registry with Confluent's; gives the URL."""

    class Handler(BaseHTTPRequestHandler):
        """Ids are those of the registry."""

        def do_POST(self) -> None:
            """POST groups/{group}/artifacts: register a schema."""
            schema = self.rfile.read(int(self.headers["Content-Length"])).decode()
            name = self.headers.get("X-Registry-ArtifactId", "schema")
            made = httpx.post(f"{registry_url}/subjects/{name}/versions", json={"schema": schema})
            number = made.raise_for_status().json()["id"]
            self._answer({"id": name, "groupId": "default", "version": "1", "globalId": number, "contentId": number})

        def do_GET(self) -> None:
            """GET ids/globalIds/{id}, and the schemas that it refers to."""
            if self.path.endswith("/references"):
                return self._answer([])
            number = self.path.partition("?")[0].rpartition("/")[2]
            found = httpx.get(f"{registry_url}/schemas/ids/{number}").raise_for_status()
            return self._answer(json.loads(found.json()["schema"]))

        def _answer(self, document: object) -> None:
            body = json.dumps(document).encode()
            self.send_response(httpx.codes.OK)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """Log nothing."""

    with ThreadingHTTPServer((node.HOST, 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{node.HOST}:{server.server_port}/apis/registry/v2"
        server.shutdown()


def measure_avro_peer(count: int, rounds: int = 2) -> Iterator[dict[str, object]]:
    """FileStreamSource that writes Avro, and FileStreamSink that reads it; at-least-once, structs of three texts."""
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(gate=False) as kafka:
        folder = Path(name)
        path = flows.lines_file(folder, count)
        config = WorkerConfig.parse(peer_config(kafka.bootstrap_servers, "registry"))
        with (
            SchemaRegistry(config) as registry,
            _apicurio(registry.url) as apicurio_url,
            both_sides(kafka, folder, "disabled", plugin_folder(folder, _JARS), _DISCOVERY) as sides,
        ):
            converters = {
                "kafka_connect": {
                    "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
                    "value.converter.apicurio.registry.url": apicurio_url,
                    "value.converter.apicurio.registry.as-confluent": "true",
                    "value.converter.apicurio.registry.headers.enabled": "false",
                    "value.converter.apicurio.registry.auto-register": "true",
                },
                "connectx": {"value.converter": "AvroConverter", "value.converter.schema.registry.url": registry.url},
            }
            yield from rates("avro_write", sides, rounds, FileSourceRun(kafka, path, count, _AS_STRUCTS, converters))
            ours = next(side for side in sides if side.name == "connectx")
            FileSourceRun(kafka, path, count, _AS_STRUCTS, converters).fill(ours, "avro")
            yield from rates("avro_read", sides, rounds, FileSinkRun(folder, count, "avro", _AS_LINES, converters))
