"""Text of nested values as Connect's Values.convertToString spells it."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from connectx.data.transforms.texts import nested_text


def test_a_struct_is_spelled_with_its_fields_and_texts_in_quotes() -> None:
    rows = [
        {
            "id": 1,
            "name": 'a"\\b',
            "data": b"\x00\xff",
            "price": Decimal("1.50"),
            "more": {"on": True},
            "list": [1.5, None],
        },
        {"id": None, "name": None, "data": None, "price": None, "more": None, "list": None},
        None,
    ]
    kind = pa.struct([
        ("id", pa.int32()), ("name", pa.string()), ("data", pa.binary()), ("price", pa.decimal128(5, 2)),
        ("more", pa.struct([("on", pa.bool_())])), ("list", pa.list_(pa.float64())),
    ])  # fmt: skip
    assert nested_text(pa.array(rows, kind), "headers").to_pylist() == [
        '{"id":1,"name":"a\\"\\\\b","data":"AP8=","price":1.50,"more":{"on":true},"list":[1.5,null]}',
        '{"id":null,"name":null,"data":null,"price":null,"more":null,"list":null}',
        "null",
    ]
