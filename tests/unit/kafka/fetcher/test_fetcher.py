"""The fetcher's errors, at a broker that refuses it and at none."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from connectx.errors.kafka import KafkaLoginError, RecordBatchError
from connectx.kafka.fetcher.fetcher import RecordFetcher
from connectx.model.ids import TopicPartition
from tests.support.waiting import until
from tests.unit.kafka.fetcher.test_chunks import batch, bomb, chunk
from tests.unit.kafka.loopback import LoopbackBroker

T0 = TopicPartition("t", 0)
Make = Callable[..., RecordFetcher]


@pytest.fixture
def make() -> Iterator[Make]:
    """`make(address, **settings)`: a fetcher of one partition."""
    made: list[RecordFetcher] = []

    def start(address: str, **settings: Any) -> RecordFetcher:
        fetcher = RecordFetcher({"bootstrap.servers": address} | {k.replace("_", "."): v for k, v in settings.items()})
        made.append(fetcher)
        fetcher.start()
        fetcher.fetch_from({T0: 0})
        return fetcher

    yield start
    for fetcher in made:
        fetcher.close()


def test_wrong_credentials_are_reported_without_the_password(make: Make) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "wrong"}
    with LoopbackBroker(2, {"t": 1}) as broker:
        fetcher = make(broker.address, security_protocol="SASL_PLAINTEXT", **login)
        with pytest.raises(KafkaLoginError, match="invalid credentials") as found:
            until(lambda: fetcher.poll(0.1, 10), "an error", 10)
        assert "wrong" not in str(found.value)
        with pytest.raises(KafkaLoginError):
            fetcher.poll(0, 10)


def test_without_a_broker_nothing_comes_and_the_reason_is_known(make: Make) -> None:
    with LoopbackBroker(2, {"t": 1}) as broker:
        address = broker.address
    fetcher = make(address, request_timeout_ms=300)
    reason = until(lambda: None if fetcher.poll(0.05, 10) else fetcher.trouble, "a reason", 10)
    assert "Error" in reason


def test_a_topic_that_is_missing_is_asked_for_again_and_named(make: Make) -> None:
    with LoopbackBroker(2, {"other": 1}) as broker:
        fetcher = make(broker.address)
        until(lambda: fetcher.poll(0.05, 10) is None and fetcher.trouble == "t: UNKNOWN_TOPIC_OR_PARTITION", "it", 10)
        fetcher.forget([T0])
        fetcher.close()
        assert fetcher.poll(0, 10) is None


def test_records_before_a_wrong_crc_are_returned_and_the_batch_is_named_until_it_is_left_out(make: Make) -> None:
    wrong = bytearray(batch(2, b"b"))
    struct.pack_into(">I", wrong, 17, 1)
    with LoopbackBroker(2, {"t": 1}) as broker:
        broker.log["t", 0] = {0: batch(0, b"a", b"b"), 2: bytes(wrong), 3: batch(3, b"d")}
        fetcher = make(broker.address, check_crcs="true")
        first = until(lambda: fetcher.poll(0.1, 10), "records", 10)
        assert first.rows["offset"].to_pylist() == [0, 1]
        for _ in range(2):
            with pytest.raises(RecordBatchError, match=r"of t-0 at offset 2 .*CRC"):
                fetcher.poll(10, 10)
        fetcher.fetch_from({T0: 3})
        last = until(lambda: fetcher.poll(0.1, 10), "records", 10)
        assert last.rows["offset"].to_pylist() == [3]


def test_a_batch_that_cannot_be_read_is_not_passed_by_when_it_is_asked_for_again(make: Make) -> None:
    with LoopbackBroker(2, {"t": 1}) as broker:
        fetcher = make(broker.address)
        fetcher._ready.append(chunk(bomb(0, b"no gzip", "gzip") + batch(1, b"a")))
        for _ in range(2):
            with pytest.raises(RecordBatchError, match="of t-0 at offset 0"):
                fetcher.poll(0, 10)
