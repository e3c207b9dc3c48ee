"""AvroConverter: Confluent's wire format, subjects, and what it asks a registry. The registry is confluent-kafka's."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from connectx.data.avro.converter import AvroConverter
from connectx.data.converters import decode, encode, encode_readable
from connectx.data.simple import StringConverter
from connectx.errors.plugins import (
    ConfigError,
    ConversionError,
    RegistryUnavailableError,
    SchemaIncompatibleError,
    SchemaNotFoundError,
)
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins

ROWS = pa.array([{"id": 1, "name": "a"}, None, {"id": 2, "name": None}])
VALUE = SerializationContext("orders", MessageField.VALUE)

Make = Callable[..., AvroConverter]


@pytest.fixture
def url() -> str:
    return f"mock://{uuid.uuid4().hex}"


@pytest.fixture
def make(url: str) -> Make:
    def made(is_key: bool = False, **settings: str) -> AvroConverter:
        given = {name.replace("__", "."): value for name, value in settings.items()}
        return AvroConverter({"schema.registry.url": url, **given}, is_key=is_key)

    return made


def client_of(converter: AvroConverter) -> SchemaRegistryClient:
    return converter._registry._client


@pytest.mark.parametrize("name", ["AvroConverter", "Avro", "io.confluent.connect.avro.AvroConverter"])
def test_a_connector_names_the_converter_as_in_kafka_connect(name: str, url: str) -> None:
    worker = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1"}))
    config = {"value.converter": name, "value.converter.schema.registry.url": url}
    assert isinstance(Plugins().converter("value", config, worker), AvroConverter)


def test_a_tombstone_stays_null_and_a_record_has_zero_and_its_schemas_id_before_the_body(make: Make) -> None:
    converter = make()
    first, tombstone, _ = converter.for_topic("orders").to_bytes_arrow(ROWS).to_pylist()
    schema_id = client_of(converter).get_latest_version("orders-value").schema_id or 0
    assert tombstone is None
    assert first[:5] == b"\0" + schema_id.to_bytes(4, "big")
    assert converter.from_bytes_arrow(pa.array([first, None])).value.to_pylist() == [{"id": 1, "name": "a"}, None]


def test_confluents_deserializer_reads_what_the_converter_writes(make: Make) -> None:
    converter = make()
    written = converter.for_topic("orders").to_bytes_arrow(ROWS).to_pylist()
    read = AvroDeserializer(client_of(converter))
    assert [read(one, VALUE) for one in written] == ROWS.to_pylist()


def test_the_converter_reads_what_confluents_serializer_writes(make: Make) -> None:
    converter = make()
    schema = {"type": "record", "name": "n.R", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "bytes"}]}
    write = AvroSerializer(client_of(converter), json.dumps(schema))
    rows = [{"x": 1, "y": b"a"}, {"x": 2, "y": b""}]
    read = converter.from_bytes_arrow(pa.array([write(row, VALUE) for row in rows]))
    assert read.value.to_pylist() == rows


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "orders-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "com.acme.Order"),
        ("TopicRecordNameStrategy", "orders-com.acme.Order"),
    ],
)
def test_the_strategy_names_the_subject(make: Make, strategy: str, subject: str) -> None:
    converter = make(value__subject__name__strategy=strategy, record__name="com.acme.Order")
    converter.for_topic("orders").to_bytes_arrow(ROWS)
    assert client_of(converter).get_subjects() == [subject]


def test_record_names_need_records(make: Make) -> None:
    converter = make(is_key=True, key__subject__name__strategy="RecordNameStrategy")
    with pytest.raises(
        ConversionError,
        match=r"=RecordNameStrategy needs records with a name, and the key is string",
    ):
        converter.for_topic("t").to_bytes_arrow(pa.array(["a"]))


def test_rows_of_several_topics_are_registered_under_each_and_keep_their_order(make: Make) -> None:
    converter = make()
    rows = pa.table({"value": pa.array([{"x": n} for n in range(5)]), "topic": ["a", "b", None, "a", "b"]})
    records = encode(rows, StringConverter(), converter, "c")
    assert sorted(client_of(converter).get_subjects()) == ["a-value", "b-value", "c-value"]
    read = decode(pa.table({"key": records["key"], "value": records["value"]}), StringConverter(), converter)
    assert read["value"].to_pylist() == [{"x": n} for n in range(5)]


def test_a_row_that_is_not_written_is_named_by_its_number_across_topics(make: Make) -> None:
    converter = make(auto__register__schemas="false")
    client_of(converter).register_schema("b-value", Schema('{"type":"record","name":"io.confluent.connect.avro.'
                                         'ConnectDefault","fields":[]}', "AVRO"))  # fmt: skip
    rows = pa.table({"value": pa.array([1, 2, 3]), "topic": ["a", "b", "a"]})
    records, bad = encode_readable(rows, StringConverter(), converter)
    assert records.num_rows == 0
    assert list(bad) == [0, 1, 2]
    assert "a-value" in bad[0]
    assert "b-value" in bad[1]


def test_the_latest_schema_is_written_with_when_the_converter_may_not_register(make: Make) -> None:
    converter = make(auto__register__schemas="false", use__latest__version="true")
    fields = [{"name": "name", "type": ["null", "string"]}, {"name": "id", "type": "long"}]
    latest = json.dumps({"type": "record", "name": "Order", "fields": fields})
    schema_id = client_of(converter).register_schema("orders-value", Schema(latest, "AVRO"))
    (written,) = converter.for_topic("orders").to_bytes_arrow(ROWS.slice(0, 1)).to_pylist()
    assert written == b"\0" + schema_id.to_bytes(4, "big") + b"\x02\x02a\x02"


def test_a_schema_that_is_not_registered_is_an_error_when_the_converter_may_not_register(make: Make) -> None:
    converter = make(auto__register__schemas="false")
    with pytest.raises(SchemaNotFoundError, match=r"orders-value.*auto\.register\.schemas"):
        converter.for_topic("orders").to_bytes_arrow(ROWS)


def test_a_record_that_no_schema_can_be_found_for_has_an_error_and_others_are_read(make: Make) -> None:
    converter = make()
    good = converter.for_topic("t").to_bytes_arrow(pa.array(["a"]))[0].as_py()
    read = converter.from_bytes_arrow(pa.array([b"{}", good, b"\x01\0\0\0\x01x", b"\0\0\0\0\x63x", None]))
    assert read.value.to_pylist() == [None, "a", None, None, None]
    errors = read.error.to_pylist()
    assert "fewer than the 5" in errors[0]
    assert errors[1] is None
    assert "record header" in errors[2]
    assert "does not have the schema 99" in errors[3]
    assert errors[4] is None


def test_a_schema_of_another_kind_is_an_error_of_its_records(make: Make) -> None:
    converter = make()
    schema_id = client_of(converter).register_schema("s", Schema('{"type":"object"}', "JSON"))
    read = converter.from_bytes_arrow(pa.array([b"\0" + schema_id.to_bytes(4, "big") + b"{}"]))
    assert read.error.to_pylist() == [f"The schema {schema_id} is JSON, not Avro."]


def test_schemas_without_metadata_have_avros_properties_only(make: Make) -> None:
    converter = make(connect__meta__data="false")
    converter.for_topic("t").to_bytes_arrow(pa.array([{"d": 1}], pa.struct([pa.field("d", pa.int8(), False)])))
    text = client_of(converter).get_latest_version("t-value").schema.schema_str or ""
    assert "connect." not in text.replace("io.confluent.connect.avro", "")
    assert json.loads(text)["fields"] == [{"name": "d", "type": "int"}]


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("value.subject.name.strategy", "Mine", "value.subject.name.strategy"),
        ("basic.auth.credentials.source", "SASL_INHERIT", "basic.auth.credentials.source"),
        ("schema.registry.ssl.truststore.type", "JKS", "schema.registry.ssl.truststore.type"),
        ("schema.registry.url", "ftp://x", "cannot be made: Invalid url"),
        ("value.schema.id.serializer", "io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer",
         "schema ids are written before the value, not in a header"),
    ],
)  # fmt: skip
def test_a_setting_that_is_not_supported_is_refused_with_its_key(key: str, value: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        AvroConverter({"schema.registry.url": "http://x", key: value})


def test_the_url_is_required() -> None:
    with pytest.raises(ConfigError, match=r'Missing required configuration "schema\.registry\.url"'):
        AvroConverter({})


def test_a_registry_that_is_down_is_retriable_and_named_without_its_login() -> None:
    converter = AvroConverter({"schema.registry.url": "http://me:secret@127.0.0.1:9"})
    with pytest.raises(RegistryUnavailableError) as caught:
        converter.for_topic("t").to_bytes_arrow(pa.array(["a"]))
    assert caught.value.retriable
    assert "http://127.0.0.1:9" in str(caught.value)
    assert "value.converter.schema.registry.url" in str(caught.value)
    assert "secret" not in str(caught.value)


class _Answers(BaseHTTPRequestHandler):
    status, body = 200, b"{}"
    logins: list[str | None] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.logins.append(self.headers.get("authorization"))
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(self.status)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def answering() -> Iterator[Callable[..., tuple[AvroConverter, list[str | None]]]]:
    servers: list[ThreadingHTTPServer] = []

    def answer(status: int, body: object, **settings: str) -> tuple[AvroConverter, list[str | None]]:
        content = json.dumps(body).encode()
        handler = type("Handler", (_Answers,), {"status": status, "body": content, "logins": []})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        given = {name.replace("__", "."): value for name, value in settings.items()}
        registry = f"http://127.0.0.1:{server.server_port}"
        return AvroConverter({"schema.registry.url": registry, **given}), handler.logins  # type: ignore[attr-defined]

    yield answer
    for server in servers:
        server.shutdown()
        server.server_close()


def test_an_incompatible_schema_is_one_sentence_with_the_subject_and_what_the_registry_says(answering: Any) -> None:
    said = {"error_code": 409, "message": "Schema being registered is incompatible: MISSING_FIELD id"}
    converter, _ = answering(409, said)
    with pytest.raises(SchemaIncompatibleError, match=r"t-value.*MISSING_FIELD id"):
        converter.for_topic("t").to_bytes_arrow(ROWS)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_answer_that_may_change_is_retriable(answering: Any, status: int) -> None:
    converter, _ = answering(status, {"error_code": status, "message": "Not the leader"})
    with pytest.raises(RegistryUnavailableError, match="Not the leader"):
        converter.for_topic("t").to_bytes_arrow(ROWS)


def test_a_login_is_sent_and_its_refusal_names_the_key_and_not_the_password(answering: Any) -> None:
    login = {"basic__auth__credentials__source": "USER_INFO", "basic__auth__user__info": "me:secret"}
    converter, logins = answering(401, {"error_code": 401, "message": "no"}, **login)
    with pytest.raises(ConversionError, match=r"refuses the login \(401\).*basic\.auth\.user\.info") as caught:
        converter.for_topic("t").to_bytes_arrow(ROWS)
    assert logins == ["Basic bWU6c2VjcmV0"]
    assert "secret" not in str(caught.value)


def test_a_registry_is_asked_once_for_a_schema(answering: Any) -> None:
    converter, logins = answering(200, {"id": 7})
    for _ in range(3):
        assert converter.for_topic("t").to_bytes_arrow(ROWS)[0].as_py()[:5] == b"\0\0\0\0\x07"
    assert len(logins) == 1
