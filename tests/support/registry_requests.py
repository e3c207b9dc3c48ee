"""Sends hostile requests to the schema registry: `python -m tests.support.registry_requests SEED COUNT`.

Bodies are changed at random, and so are schemas: as JSON trees, as tokens, as letters. Prints each failure of the
registry once, with the place that failed, and requests that take more than a second.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

from connectx.data.protobuf.files import encoded, file_of
from connectx.schema_registry.api import _PATHS, create_app
from connectx.schema_registry.catalog import Catalog, Change
from tests.support.registry_words import (
    AVRO,
    JSON_SCHEMA,
    KEYS,
    METHODS,
    NUMBERS,
    ODD,
    ODD_TEXTS,
    PROTOBUF,
    QUERIES,
    RAW,
    SCHEMAS,
    SUBJECTS,
    TOKENS,
    VALUES,
)

_STORE_LIFE: Final = 60
"""Requests until the registry is empty again."""
_SLOW_S: Final = 1.0


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


@dataclass(frozen=True, slots=True)
class Sent:
    """A request. `target` is the path with its query, as on the wire."""

    method: str
    target: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"application/json"),)


@dataclass(slots=True)
class Answer:
    """Status, and what was raised beyond the application."""

    status: int
    error: BaseException | None = None
    body: bytearray = field(default_factory=bytearray)


async def answer_of(app: Any, sent: Sent) -> Answer:
    raw, _, query = sent.target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": sent.method,
        "scheme": "http",
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": list(sent.headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8081),
    }
    answer, chunks = Answer(0), [sent.body[:1000], sent.body[1000:]]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": chunks.pop(0) if chunks else b"", "more_body": len(chunks) > 0}

    async def send(message: dict[str, Any]) -> None:
        answer.status = message.get("status", answer.status)
        answer.body.extend(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except Exception as error:
        answer.error, answer.status = error, 500
    return answer


def answers_of(requests: list[Sent]) -> list[Answer]:
    """Answers of a new registry."""
    store: Any = Store()

    async def all_sent() -> list[Answer]:
        app = create_app(store)
        return [await answer_of(app, one) for one in requests]

    return asyncio.run(all_sent())


@dataclass(slots=True)
class Hostile:
    """Draws requests."""

    chance: random.Random

    def requests(self) -> Iterator[Sent]:
        while True:
            match self.chance.randrange(10):
                case 0 | 1 | 2:
                    yield self._anything()
                case 3:
                    yield Sent(
                        "PUT", "/mode?force=true", b'{"mode":"%s"}' % self.chance.choice((b"IMPORT", b"READWRITE"))
                    )
                case 4:
                    yield Sent(
                        "PUT", "/config", b'{"compatibility":"%s"}' % self.chance.choice((b"NONE", b"FULL_TRANSITIVE"))
                    )
                case _:
                    yield self._registration()

    def _anything(self) -> Sent:
        chance = self.chance
        path = chance.choice([*_PATHS])
        method = chance.choice(METHODS if chance.random() < 0.2 else [*_PATHS[path]])
        subject, number, schema_id = self._subject(), chance.choice(NUMBERS), chance.choice(NUMBERS)
        filled = path.format(
            subject=quote(subject, safe=""), version=quote(number, safe=""), id=quote(schema_id, safe="")
        )
        if chance.random() < 0.15:
            filled = self._changed_text(filled, "%/.;?#").encode("ascii", "replace").decode().replace("\x00", "")
        query = "&".join(f"{chance.choice(QUERIES)}={chance.choice(VALUES)}" for _ in range(chance.randrange(4)))
        headers = [(b"content-type", b"application/json")] if chance.random() < 0.9 else []
        if chance.random() < 0.1:
            headers.append((b"content-length", chance.choice((b"-1", b"x", b"9" * 30, b"1", b"\xb2", b"9" * 6000))))
        return Sent(method, f"{filled}?{query}" if query else filled, self._body(), tuple(headers))

    def _registration(self) -> Sent:
        subject = quote(self._subject(), safe="")
        path = self.chance.choice(
            [f"/subjects/{subject}/versions"] * 4
            + [f"/subjects/{subject}", f"/compatibility/subjects/{subject}/versions/latest"]
            + [f"/compatibility/subjects/{subject}/versions", f"/subjects/{subject}/versions?normalize=true"]
        )
        return Sent("POST", path, self._body())

    def _subject(self) -> str:
        return self.chance.choice(SUBJECTS if self.chance.random() < 0.3 else SUBJECTS[:2])

    def _body(self) -> bytes:
        chance = self.chance
        if chance.random() < 0.08:
            return chance.choice(RAW)
        kind = chance.choice([*SCHEMAS])
        body: dict[str, Any] = {"schemaType": kind, "schema": self._schema(kind)}
        if chance.random() < 0.4:
            body["references"] = self._references()
        if chance.random() < 0.3:
            body |= {"id": chance.choice((1, 2, 3, 2**31 - 1)), "version": chance.choice((1, 2, 3, 2**31 - 1))}
        for name in (
            "schema",
            "schemaType",
            "references",
            "id",
            "version",
            "compatibility",
            "mode",
            "metadata",
            "ruleSet",
        ):
            if chance.random() < 0.06:
                body[name] = self._odd()
        if chance.random() < 0.2:
            body["compatibility"] = chance.choice(("NONE", "FULL_TRANSITIVE", "forward", self._odd()))
            body["mode"] = chance.choice(("IMPORT", "READWRITE", "READONLY", self._odd()))
        text = json.dumps(body).encode()
        return (
            self._changed_text(text.decode(), '{}[]":,\\').encode(errors="replace") if chance.random() < 0.05 else text
        )

    def _references(self) -> Any:
        chance = self.chance
        count = 3000 if chance.random() < 0.01 else chance.randrange(4)
        return [
            {
                "name": chance.choice(("A", "x.proto", "r.json", "", "#", "n.B", self._odd())),
                "subject": self._subject() if chance.random() < 0.95 else self._odd(),
                "version": chance.choice((1, 2, 3, -1, 1, 2, self._odd())),
            }
            for _ in range(count)
        ]

    def _odd(self) -> Any:
        if self.chance.random() < 0.05:
            deep: Any = 1
            for _ in range(self.chance.choice((20, 98, 200, 900))):
                deep = {self.chance.choice(KEYS): deep} if self.chance.random() < 0.5 else [deep]
            return deep
        return self.chance.choice(ODD)

    def _schema(self, kind: str) -> str:
        chance = self.chance
        text = chance.choice(ODD_TEXTS if chance.random() < 0.05 else SCHEMAS[kind])
        if chance.random() < 0.2:
            return text
        if kind == "PROTOBUF":
            return self._protobuf(text)
        try:
            tree = json.loads(text)
            for _ in range(chance.randint(1, 4)):
                tree = self._changed_tree(tree)
            text = json.dumps(tree)
        except (ValueError, RecursionError):
            pass
        return self._changed_text(text, '{}[]":,\\') if chance.random() < 0.1 else text

    def _changed_tree(self, tree: Any) -> Any:
        """A copy with one part replaced, wrapped, doubled, named otherwise, or taken out."""
        chance = self.chance
        if not isinstance(tree, dict | list) or not tree or chance.random() < 0.15:
            match chance.randrange(4):
                case 0:
                    return {
                        chance.choice(KEYS): tree,
                        "type": chance.choice(("array", "map", "record", "object", tree)),
                    }
                case 1:
                    return [tree, tree]
                case 2:
                    return json.loads(chance.choice(AVRO + JSON_SCHEMA))
                case _:
                    return self._odd()
        if isinstance(tree, list):
            place = chance.randrange(len(tree))
            return [*tree[:place], self._changed_tree(tree[place]), *tree[place + chance.randrange(2) :]]
        name = chance.choice([*tree])
        made = dict(tree)
        match chance.randrange(5):
            case 0:
                del made[name]
            case 1:
                made[chance.choice(KEYS)] = made.pop(name)
            case 2:
                made[chance.choice(KEYS)] = self._odd()
            case _:
                made[name] = self._changed_tree(made[name])
        return made

    def _protobuf(self, text: str) -> str:
        chance = self.chance
        if chance.random() < 0.2:
            try:
                data = bytearray(base64.b64decode(encoded(file_of(text))))
            except Exception:
                return text
            for _ in range(chance.randint(0, 6)):
                place = chance.randint(0, len(data))
                data[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
            return base64.b64encode(data).decode()
        tokens = re.findall(r"\w+|\s+|.", text)
        for _ in range(chance.randint(1, 5)):
            place, end = sorted(chance.randrange(len(tokens) + 1) for _ in range(2))
            match chance.randrange(6):
                case 0:
                    del tokens[place : place + 1]
                case 1:
                    tokens[place : place + 1] = [chance.choice(TOKENS)]
                case 2:
                    tokens[place:place] = [" ", chance.choice(TOKENS), " "]
                case 3:
                    tokens[place:place] = tokens[place:end]
                case 4:
                    del tokens[place : place + chance.randrange(6)]
                case _:
                    tokens[place : place + 1] = tokens[end : end + 1]
        return "".join(tokens[:3000])

    def _changed_text(self, text: str, letters: str) -> str:
        for _ in range(self.chance.randint(1, 3)):
            place = self.chance.randint(0, len(text))
            inserted = self.chance.choice((*letters, "\x00", "9", "", "\u00e9"))
            text = text[:place] + inserted + text[place + self.chance.randrange(3) :]
        return text


def failures(seed: int, count: int) -> dict[str, Sent]:
    """Requests that the registry failed on, by the place that failed, one of each kind; also slow ones."""
    file_of(PROTOBUF[0])  # its parser is slow to import
    found: dict[str, Sent] = {}
    chance = random.Random(seed)
    source = Hostile(chance).requests()

    async def sent() -> None:
        for number in range(count):
            if number % _STORE_LIFE == 0:
                store: Any = Store()
                app = create_app(store)
            request = next(source)
            began = time.monotonic()
            answer = await answer_of(app, request)
            if time.monotonic() - began > _SLOW_S:
                found.setdefault("slow", request)
            if answer.status >= 500 or not answer.status:
                found.setdefault(_place(answer), request)

    asyncio.run(sent())
    return found


def _place(answer: Answer) -> str:
    if answer.error is None:
        return f"{answer.status} {answer.body.decode()[:200]}"
    frames = [one for one in traceback.extract_tb(answer.error.__traceback__) if "connectx" in one.filename]
    return f"{answer.error!r:.200} at " + " < ".join(f"{one.filename[-40:]}:{one.lineno}" for one in frames[-1:-4:-1])


if __name__ == "__main__":
    for _place_, _request in failures(int(sys.argv[1]), int(sys.argv[2])).items():
        print(_place_, "\n    ", _request.method, _request.target[:200], _request.body[:600])
