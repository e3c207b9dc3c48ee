"""Builds the requests for a batch of records. Pure: it sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.http.config import VARIABLE, HttpSettings
from connectx.data.chunks import one_chunk
from connectx.data.json.writer import json_text
from connectx.data.shapes import is_united, mapped
from connectx.model.ids import TopicPartition
from connectx.values import Value


class Request(Value):
    """One request: records of one partition with the same URL, in their order. A DELETE has one offset, no text."""

    method: str
    url: str
    partition: TopicPartition
    offsets: tuple[int, ...]
    texts: tuple[str, ...]

    @property
    def id(self) -> str:
        """Topic, partition and offset; of several records the first and the last offset."""
        first, last = self.offsets[0], self.offsets[-1]
        return f"{self.partition}-{first}" if first == last else f"{self.partition}-{first}-{last}"

    def body(self, settings: HttpSettings) -> bytes | None:
        """The records between prefix and suffix; None for a DELETE."""
        if not self.texts:
            return None
        return f"{settings.prefix}{settings.separator.join(self.texts)}{settings.suffix}".encode()

    def halves(self) -> tuple[Request, Request]:
        at = len(self.offsets) // 2
        first = Request(self.method, self.url, self.partition, self.offsets[:at], self.texts[:at])
        return first, Request(self.method, self.url, self.partition, self.offsets[at:], self.texts[at:])


@dataclass(slots=True)
class Plan:
    """What to do with the records of a put.

    Attributes:
        requests: in the order of their first records. Records with the same URL stay in order.
        refused: records that cannot be sent: partition, offset, cause.
        ignored: places of tombstones that are left out.
    """

    requests: list[Request] = field(default_factory=list)
    refused: list[tuple[TopicPartition, int, str]] = field(default_factory=list)
    ignored: list[tuple[TopicPartition, int]] = field(default_factory=list)


def plan(rows: pa.Table, topic: str, settings: HttpSettings) -> Plan:
    """Requests for rows of a SinkBatch whose records come from `topic`.

    Raises:
        ConversionError: values or keys of a type that JSON does not have.
    """
    made = Plan()
    texts = texts_of(rows["value"], as_json=settings.as_json)
    variables = _variables(rows, settings.url)
    open_groups: dict[tuple[TopicPartition, str], _Group] = {}
    groups: list[_Group] = []
    partitions, offsets = rows["partition"].to_pylist(), rows["offset"].to_pylist()
    for row, (partition, offset, text) in enumerate(zip(partitions, offsets, texts, strict=True)):
        at = TopicPartition(topic, partition)
        if text is None and settings.on_null in ("ignore", "log"):
            made.ignored.append((at, offset))
            continue
        if text is None and settings.on_null == "fail":
            made.refused.append((at, offset, "it has no value, and behavior.on.null.values=fail"))
            continue
        missing = next((name for name, column in variables.items() if column[row] is None), None)
        if missing is not None:
            made.refused.append((at, offset, f"it has no {missing} for ${{{missing}}} in http.api.url"))
            continue
        url = _filled(settings.url, {name: str(column[row]) for name, column in variables.items()})
        group = open_groups.get((at, url))
        if text is None:
            open_groups.pop((at, url), None)
            groups.append(_Group("DELETE", url, at, [offset], []))
            continue
        if group is None or len(group.offsets) >= settings.batch_size:
            group = open_groups[at, url] = _Group(settings.method, url, at, [], [])
            groups.append(group)
        group.offsets.append(offset)
        group.texts.append(text)
    made.requests = [
        Request(group.method, group.url, group.partition, tuple(group.offsets), tuple(group.texts)) for group in groups
    ]
    return made


@dataclass(slots=True)
class _Group:
    method: str
    url: str
    partition: TopicPartition
    offsets: list[int]
    texts: list[str]


def texts_of(values: pa.ChunkedArray, *, as_json: bool) -> list[str | None]:
    """Values as text: text and bytes as they are, everything else as JSON; with `as_json` text as JSON, too."""
    kind, types = values.type, pa.types
    if is_united(kind) and not as_json:
        texts = mapped(lambda part: pa.array(texts_of(pa.chunked_array([part]), as_json=False), pa.string()), values)
        return list(texts.to_pylist())
    if types.is_null(kind):
        return [None] * len(values)
    if not as_json and (types.is_binary(kind) or types.is_large_binary(kind)):
        return [None if value is None else value.decode(errors="replace") for value in values.to_pylist()]
    if not as_json and (types.is_string(kind) or types.is_large_string(kind)):
        return list(values.to_pylist())
    return [text for chunk in values.chunks for text in json_text(chunk, base64_decimals=False).to_pylist()]


def _variables(rows: pa.Table, url: str) -> Mapping[str, Sequence[Any]]:
    """Per variable of the URL its value in each row; None where the record has none."""
    found: dict[str, Sequence[Any]] = {}
    for name in dict.fromkeys(VARIABLE.findall(url)):
        if name in ("topic", "partition", "offset"):
            found[name] = rows[name].to_pylist()
        elif name == "key":
            found[name] = texts_of(rows["key"], as_json=False)
        else:
            found[name] = texts_of(_field(rows["value"], name), as_json=False)
    return found


def _filled(url: str, variables: Mapping[str, str]) -> str:
    return VARIABLE.sub(lambda found: quote(variables[found[1]], safe=""), url)


def _field(values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """A field of values; nulls where they have no such field."""
    if is_united(values.type):
        return pa.chunked_array([mapped(lambda part: one_chunk(_field(pa.chunked_array([part]), name)), values)])
    if not pa.types.is_struct(values.type) or values.type.get_field_index(name) < 0:
        return pa.chunked_array([pa.nulls(len(values), pa.string())])
    return pc.struct_field(values, name)
