"""Records are decoded as the sink decodes them, so that they can be compared with the rows of its target."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from connectx.data.transforms.columns import HEADERS
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins
from connectx.plugins.stored import Stored
from connectx.verify.check.decoding import SinkDecoder
from tests.support.json_records import CONVERTERS
from tests.support.profiles import JSON

RECORDS = pa.table(
    {
        "topic": ["t"],
        "key": pa.array([None], pa.binary()),
        "value": [b'{"id":7,"half":3.5}'],
        "headers": pa.array([None], HEADERS),
        "timestamp": [0],
        "partition": [0],
        "offset": [0],
    }
)
KIND = pa.struct([("id", pa.int64()), ("half", pa.float64())])


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        (Stored("rows", lambda: iter([])), {"id": 7, "half": 3.5}),
        (Stored("rows", lambda: iter([]), value_type=KIND), {"id": 7, "half": 3.5}),
        (Stored("lines", lambda: iter([]), lines=True), '{"id":7,"half":3.5}'),
    ],
    ids=["fields of unknown types", "fields of known types", "lines"],
)
def test_values_have_the_form_of_the_targets_rows(stored: Stored, value: object) -> None:
    worker = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1"}))
    decoder = SinkDecoder.of(Plugins(), {"connector.class": "DataSourceSink", **JSON}, worker, stored)
    assert pickle.loads(cloudpickle.dumps(decoder))("t", RECORDS) == [(None, value)]
    assert decoder("t", RECORDS) == [(None, value)]


def test_keys_without_schemas_have_the_form_of_the_targets_keys() -> None:
    key_type = pa.struct([("id", pa.decimal128(20, 0))])
    stored = Stored("rows", lambda: iter([]), key=("id",), key_in_record_key=True, key_type=key_type, value_type=KIND)
    worker = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1"}))
    decoder = SinkDecoder.of(Plugins(), {"connector.class": "DataSourceSink", **CONVERTERS}, worker, stored)
    keys = [b"7", b'{"id":12345678901234567891}']
    records = pa.concat_tables([RECORDS] * 2).drop_columns("key").append_column("key", pa.array(keys, pa.binary()))
    assert [key for key, _ in decoder("t", records)] == [{"id": 7}, {"id": 12345678901234567891}]
