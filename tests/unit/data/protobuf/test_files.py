"""Protobuf schemas as text, as descriptors, and as base64 of descriptors."""

from __future__ import annotations

import pytest

from connectx.data.protobuf.codec import encoded_indexes, indexes_of
from connectx.data.protobuf.files import encoded, file_of, params_of, plain_text, text_of
from connectx.data.protobuf.pools import descriptor_of

TEXT = """syntax = "proto2";
package com.acme;
import "google/protobuf/timestamp.proto";

message Order {
  required int64 id = 1 [default = 7];
  optional string name = 2 [default = "a \\"b\\""];
  repeated int32 many = 3 [packed = true];
  map<string, .google.protobuf.Timestamp> times = 4;
  oneof pick {
    string text = 5;
    Inner inner = 6;
  }
  optional int32 tiny = 7 [(confluent.field_meta) = {params: [{key: "connect.type", value: "int8"}]}];
  reserved 20 to 30;
  reserved "old";
  message Inner {
    optional Color color = 1;
  }
  enum Color {
    option allow_alias = true;
    RED = 0;
    BLUE = 5;
  }
}
"""


def test_a_schema_is_the_same_text_after_it_was_a_descriptor() -> None:
    assert text_of(file_of(TEXT)) == TEXT
    assert plain_text(encoded(file_of(TEXT))) == TEXT
    assert plain_text(TEXT) is TEXT


def test_names_are_resolved_by_their_place() -> None:
    order = descriptor_of(TEXT).message_types_by_name["Order"]
    inner = order.nested_types_by_name["Inner"]
    assert inner.fields_by_name["color"].enum_type.full_name == "com.acme.Order.Color"
    assert order.fields_by_name["inner"].message_type == inner
    assert order.fields_by_name["times"].message_type.GetOptions().map_entry


@pytest.mark.parametrize(
    "option",
    [
        '(confluent.field_meta) = {params: [{key: "a", value: "1"}, {key: "b", value: "2"}]}',
        ", ".join(f'(confluent.field_meta).params = {{key: "{key}", value: "{value}"}}' for key, value in ("a1", "b2")),
    ],
)
def test_confluents_parameters_are_read_in_both_spellings(option: str) -> None:
    file = file_of(f'syntax = "proto3"; message M {{ int32 x = 1 [{option}, deprecated = true]; }}')
    assert params_of(file.message_type[0].field[0]) == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("path", "head"), [((0,), b"\0"), ((1,), b"\x02\x02"), ((2, 0), b"\x04\x04\0"), ((100,), b"\x02\xc8\x01")]
)
def test_indexes_of_messages_are_confluents(path: tuple[int, ...], head: bytes) -> None:
    assert encoded_indexes(path) == head
    assert indexes_of(head + b"body") == (path, b"body")
    assert indexes_of(b"\x02\0body") == ((0,), b"body")
