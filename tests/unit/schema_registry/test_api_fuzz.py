"""Whatever a client sends to the registry, the answer is never a failure of the registry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectx.schema_registry.api import _PATHS, create_app
from connectx.schema_registry.catalog import Catalog, Change

DEEP = 5000


class Store:
    """The registry's store without Kafka: what is written is read back."""

    def __init__(self) -> None:
        self.catalog = Catalog()

    def ask(self, question: Callable[[Catalog], Any]) -> Any:
        return question(self.catalog)

    def refresh(self) -> None:
        return

    def change(self, decide: Callable[[Catalog], Change]) -> Any:
        change = decide(self.catalog)
        for key, value in change.records:
            self.catalog.apply(key.encode(), value)
        return change.answer


def statuses(requests: list[tuple[str, str, bytes]]) -> list[int]:
    store: Any = Store()

    async def sent() -> list[int]:
        transport = httpx.ASGITransport(create_app(store), raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://registry") as client:
            headers = {"content-type": "application/json"}
            return [
                (await client.request(method, path, content=body, headers=headers)).status_code
                for method, path, body in requests
            ]

    return asyncio.run(sent())


SUBJECTS = st.sampled_from(["orders", "s", "a/b", "\ud7ff\u20ac", "", " ", "..", "%", "\x00", "x" * 3000]) | st.text(
    max_size=5
)
NUMBERS = st.sampled_from(
    ["1", "2", "latest", "-1", "0", "-2", "9" * 20, "9" * 5000, "1.5", "\u0661", "\u00b2", "x", ""]
)
SCHEMAS = st.sampled_from(
    [
        '"string"',
        '{"type":"record","name":"A","fields":[{"name":"a","type":"int"}]}',
        '{"type":"record"}',
        "[]",
        "{}",
        "null",
        '{"type":"record","name":"A","fields":[{"name":"a","type":"A"}]}',
        '{"type":"record","name":"A","fields":1}',
        "1e999",
        '{"type":"record","name":[],"fields":[]}',
        '{"type":"enum","name":"E","symbols":[1]}',
        '{"type":{"type":{}}}',
        "[[]]",
        '{"type":"fixed","name":"F","size":-1}',
        '{"type":"bytes","logicalType":"decimal","precision":"x"}',
        '"A"',
        "9" * 5000,
        '{"type":"array"}',
        '{"type":"map","values":{}}',
        '{"type":"record","name":"A","fields":[{"name":"a","type":"int","default":[]}]}',
        "[" * DEEP + "]" * DEEP,
        '{"type":' * DEEP + "1" + "}" * DEEP,
        '{"type":"array","items":' * 900 + '"int"' + "}" * 900,
        '{"type":"object","properties":1}',
        '{"$ref":"#"}',
        '{"$ref":"#/a/b"}',
        '{"$ref":1}',
        '{"allOf":{}}',
        '{"type":[1]}',
        "true",
        '{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}',
        '{"patternProperties":{"(":{}}}',
        '{"enum":1}',
        '{"oneOf":[{"type":"string"},1]}',
        '{"required":1}',
        '{"items":[1]}',
        '{"minimum":"x"}',
        '{"$id":1,"$schema":1}',
        'syntax = "proto3"; message A { int32 a = 1; }',
        'syntax = "proto3"; message A { B b = 1; }',
        "message",
        "message A {",
        "}",
        'syntax = "proto3"; message A { int32 a = 0; }',
        'syntax = "proto3"; message A { int32 a = 99999999999; }',
        "\x00",
        "\ud83d",
        'syntax = "proto3"; import "x.proto"; message A { message A { } }',
        "message A { " * 300 + "}" * 300,
        "YQ==",
        "CgFh",
        "",
    ]
)
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1, 1.5, 2**31, 2**70, "", "x", [], {}, [1], {"a": 1}, [None], [[]]]
)
REFERENCES = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["A", "x.proto", "", "#"]) | ODD,
            "subject": SUBJECTS | ODD,
            "version": st.sampled_from([1, -1, "latest", 2**40]) | ODD,
        }
    ),
    max_size=2,
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "schema": SCHEMAS | ODD,
        "schemaType": st.sampled_from(["AVRO", "JSON", "PROTOBUF"]) | ODD,
        "references": REFERENCES | ODD,
        "id": ODD,
        "version": ODD,
        "compatibility": st.sampled_from(["NONE", "FULL_TRANSITIVE", "forward"]) | ODD,
        "mode": st.sampled_from(["IMPORT", "READWRITE", "READONLY"]) | ODD,
    },
)
TEXTS = BODIES.map(lambda body: json.dumps(body).encode()) | st.sampled_from(
    [b"", b"{", b"\xff", b"[" * DEEP, b"1" * 5000, b'{"schema":' * DEEP, b"NaN", b"[]", b'{"schema":"\\ud800"}', b'"x"']
)
QUERIES = st.dictionaries(
    st.sampled_from(
        [
            "normalize",
            "deleted",
            "permanent",
            "force",
            "verbose",
            "format",
            "subjectPrefix",
            "latestOnly",
            "defaultToGlobal",
            "offset",
            "limit",
        ]
    ),
    st.sampled_from(["true", "", "x", "serialized", "-1", "o"]),
    max_size=3,
)


@st.composite
def request(draw: st.DrawFn) -> tuple[str, str, bytes]:
    path = draw(st.sampled_from([*_PATHS]))
    method = draw(st.sampled_from([*_PATHS[path]]))
    parts = {"subject": draw(SUBJECTS), "version": draw(NUMBERS), "id": draw(NUMBERS)}
    filled = path.format_map({name: quote(text, safe="") for name, text in parts.items()})
    query = "&".join(f"{name}={value}" for name, value in draw(QUERIES).items())
    return method, f"{filled}?{query}", draw(TEXTS)


REGISTRATIONS = st.tuples(
    st.just("POST"),
    st.sampled_from(
        ["/subjects/orders/versions", "/subjects/s/versions", "/compatibility/subjects/orders/versions/latest"]
    ),
    TEXTS,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(requests=st.lists(request() | REGISTRATIONS, min_size=1, max_size=6))
def test_no_request_is_a_failure_of_the_registry(requests: list[tuple[str, str, bytes]]) -> None:
    assert [status for status in statuses(requests) if status >= 500] == []
