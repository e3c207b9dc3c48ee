"""Kafka Connect's own converters, transformations and predicates in a JVM, called through py4j.

They answer record by record. Values are written inside a struct where Python would lose their Java type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from connectx.jvm import ivy, jars
from connectx.jvm.java import find_java

KAFKA: Final = "org.apache.kafka.connect."
JSON: Final = f"{KAFKA}json.JsonConverter"
DROPPED: Final = "dropped"
REFUSED: Final = "refused"
_HOISTED: Final = "it"


@dataclass(frozen=True)
class Answer:
    """The outcome for a record: DROPPED, REFUSED, or topic, key, value and headers. Documents are parsed."""

    outcome: str = ""
    topic: str | None = None
    key: Any = None
    value: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class ConnectClasses:
    """Plugins of Kafka Connect by their class names."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._hoists = {
            side: self.plugin(f"{KAFKA}transforms.HoistField${side.title()}", {"field": _HOISTED})
            for side in ("key", "value")
        }

    def plugin(self, name: str, settings: Mapping[str, str], *more: Any) -> Any:
        """A configured plugin; `more` are further arguments of its configure method."""
        made = self._jvm.java.lang.Class.forName(name)
        made = made.getDeclaredConstructor(self._gateway.new_array(self._jvm.java.lang.Class, 0))
        made = made.newInstance(self._gateway.new_array(self._jvm.java.lang.Object, 0))
        made.configure(dict(settings), *more)
        return made

    def converter(self, config: Mapping[str, str], side: str) -> Any:
        """The converter of a connector's configuration for keys or values."""
        return self.plugin(config[f"{side}.converter"], prefixed(config, f"{side}.converter."), side == "key")

    def header_converter(self, config: Mapping[str, str]) -> Any:
        """The converter of a connector's configuration for headers."""
        settings = {**prefixed(config, "header.converter."), "converter.type": "header"}
        return self.plugin(config["header.converter"], settings)

    def steps(self, config: Mapping[str, str]) -> list[tuple[Any, Any, bool]]:
        """Transformations with their predicates, and whether these are negated."""
        made = []
        for alias in filter(None, config.get("transforms", "").split(",")):
            own = prefixed(config, f"transforms.{alias}.")
            predicate = None
            if "predicate" in own:
                settings = prefixed(config, f"predicates.{own['predicate']}.")
                predicate = self.plugin(settings["type"], settings)
            made.append((self.plugin(own["type"], own), predicate, own.get("negate") == "true"))
        return made

    def answers(self, records: Sequence[Mapping[str, Any]], config: Mapping[str, str], *, sink: bool) -> list[Answer]:
        """The outcome for records, whose bytes the configuration's converters read.

        Args:
            sink: JsonConverter without schemas shows what a sink gets. Otherwise the converters of a source,
                which the keys `out.key.converter` and `out.value.converter` name, write again.
        """
        reading = [self.converter(config, side) for side in ("key", "value")]
        headers = self.header_converter(config)
        out = prefixed(config, "out.")
        plain = {f"{side}.converter": JSON for side in ("key", "value")}
        plain |= {f"{side}.converter.schemas.enable": "false" for side in ("key", "value")}
        plain |= {f"{side}.converter.decimal.format": "NUMERIC" for side in ("key", "value")}
        plain |= {f"{side}.converter.replace.null.with.default": "false" for side in ("key", "value")}
        writing = {side: self.converter(plain if sink else out, side) for side in ("key", "value")}
        steps = self.steps(config)
        found = []
        for record in records:
            try:
                found.append(self._answer(record, reading, writing, headers, steps, sink=sink))
            except Py4JJavaError:
                found.append(Answer(REFUSED))
        return found

    def file_lines(
        self, records: Sequence[Mapping[str, Any]], config: Mapping[str, str], path: str
    ) -> tuple[str, list[int]]:
        """What FileStreamSinkTask writes for records that the configuration's plugins read and transform.

        Returns:
            the text of the file, and the offsets of the records that reached the task.
        """
        reading, steps = [self.converter(config, side) for side in ("key", "value")], self.steps(config)
        headers = self.header_converter(config)
        task = self._jvm.org.apache.kafka.connect.file.FileStreamSinkTask()
        task.start({"file": path})
        offsets = []
        for record in records:
            try:
                made = self._transformed(record, reading, headers, steps)
            except Py4JJavaError:
                continue
            if made is not None:
                task.put([made])
                offsets.append(record["offset"])
        task.flush({})
        task.stop()
        return Path(path).read_text(), offsets

    def _answer(
        self,
        record: Mapping[str, Any],
        reading: Sequence[Any],
        writing: Mapping[str, Any],
        header_converter: Any,
        steps: Sequence[tuple[Any, Any, bool]],
        *,
        sink: bool,
    ) -> Answer:
        topic, made = record["topic"], self._transformed(record, reading, header_converter, steps)
        if made is None:
            return Answer(DROPPED)
        written = {side: self._written(made, side, writing[side]) for side in ("key", "value")}
        shown, left = [], made.headers().iterator()
        while left.hasNext():
            each = left.next()
            shown.append(
                (each.key(), header_converter.fromConnectHeader(topic, each.key(), each.schema(), each.value()))
            )
        return Answer("ok", made.topic(), written["key"], written["value"], tuple(shown))

    def _transformed(
        self,
        record: Mapping[str, Any],
        reading: Sequence[Any],
        header_converter: Any,
        steps: Sequence[tuple[Any, Any, bool]],
    ) -> Any:
        """A record after the chain; None: it was dropped."""
        topic = record["topic"]
        sides = [one.toConnectData(topic, record[side]) for one, side in zip(reading, ("key", "value"), strict=True)]
        headers = self._jvm.org.apache.kafka.connect.header.ConnectHeaders()
        for name, value in record["headers"]:
            headers.add(name, header_converter.toConnectHeader(topic, name, value))
        pairs = [part for one in sides for part in (one.schema(), one.value())]
        kind = self._jvm.org.apache.kafka.common.record.TimestampType.CREATE_TIME
        args = [topic, record["partition"], *pairs, record["offset"], record["timestamp"], kind, headers]
        made = self._jvm.org.apache.kafka.connect.sink.SinkRecord(*args)
        for transform, predicate, negated in steps:
            if predicate is None or predicate.test(made) != negated:
                made = transform.apply(made)
            if made is None:
                return None
        return made

    def _written(self, record: Any, side: str, converter: Any) -> Any:
        """A key or value as its converter writes it: a parsed document, or (schema, document)."""
        if converter.getClass().getName() != JSON:
            return converter.fromConnectData(record.topic(), *_parts(record, side))
        if _parts(record, side)[0] is not None:
            schema, value = _parts(self._hoists[side].apply(record), side)
            text = json.loads(converter.fromConnectData(record.topic(), schema, value))
            if set(text) == {"schema", "payload"}:
                own = {name: part for name, part in text["schema"]["fields"][0].items() if name != "field"}
                return own, text["payload"][_HOISTED]
            return ("value", text[_HOISTED])
        text = converter.fromConnectData(record.topic(), *_parts(record, side))
        if text is None:
            return None
        document = json.loads(text)
        is_enveloped = isinstance(document, dict) and set(document) == {"schema", "payload"}
        return (document["schema"], document["payload"]) if is_enveloped else ("value", document)


def _parts(record: Any, side: str) -> tuple[Any, Any]:
    return (record.keySchema(), record.key()) if side == "key" else (record.valueSchema(), record.value())


def prefixed(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Settings that begin with a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}


@contextmanager
def connect_classes() -> Iterator[ConnectClasses]:
    """Kafka Connect's classes in a JVM in UTC, which ends with the context."""
    java = find_java()
    (py4j,) = ivy.spark_jars_dir().glob("py4j-*.jar")
    paths = ":".join(str(path) for path in jars.fetch(jars.KAFKA_CONNECT, java))
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"]
    port, process = launch_gateway(
        jarpath=str(py4j),
        classpath=paths,
        javaopts=options,
        java_path=str(java.java),
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield ConnectClasses(gateway)
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait()
