"""What a task's producer does without Kafka."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connectx.errors import ProducerError
from connectx.kafka.task_producer import TaskProducer


class Cancelled(BaseException):
    """What the checkpoint of a cancelled task raises."""


def test_a_cancelled_task_still_asks_to_abort_its_transaction() -> None:
    """What `cancel` has purged is reported first; the checkpoint must not end the abort before."""
    cancelled = False

    def checkpoint() -> None:
        if cancelled:
            raise Cancelled

    producer = TaskProducer({"bootstrap.servers": "127.0.0.1:9"}, checkpoint=checkpoint)
    producer.init()
    assert producer.unacknowledged == 0
    producer.send(pa.table({"value": [b"1", b"2"]}), "unreachable")
    assert producer.unacknowledged == 2
    cancelled = True
    producer.cancel()
    with pytest.raises(ProducerError, match="abort the transaction"):  # asked, and refused: it has no transactional id
        producer.abort(1.0)
    producer.abandon()
    assert (producer.unacknowledged, producer.refusals) == (0, 0)  # what is purged was not refused
