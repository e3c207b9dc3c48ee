"""Requests of a producer keep their order, whose network loop the tests play themselves."""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Generator
from contextlib import suppress
from typing import Any, cast

from kafka.errors import KafkaConnectionError

from connectx.core.clients.messages import SendRequest, Unanswered
from connectx.core.producer import messages as msg
from connectx.kafka.net import KafkaNet
from connectx.kafka.producer.requests import ProducerRequests
from connectx.model.ids import TopicPartition

TARGET = TopicPartition("t", 0)
LOST = KafkaConnectionError("socket disconnected")


class Turn:
    """Where a coroutine waits until the test goes on with it."""

    def __await__(self) -> Generator[None]:
        yield


class Net:
    """Connections that take one turn to open and never answer; `sent` has the sequences of batches."""

    bootstrap_servers = "broker:9092"

    def __init__(self) -> None:
        self.sent: list[int] = []

    async def connect(self, node: int, deadline_s: float) -> None:
        await Turn()

    async def send(self, request: Any, node: int, timeout_ms: float) -> Any:
        self.sent.append(int(request.topic_data[0].partition_data[0].records))
        await Turn()


class Script:
    """Requests with one batch each, which begin in their order."""

    def __init__(self, *sequences: int) -> None:
        self.net = Net()
        self.reported: list[msg.ProducerStimulus] = []
        self.requests = ProducerRequests(
            cast(KafkaNet, self.net),
            30_000,
            lambda _, batch: b"%d" % batch.base_sequence,
            self.reported.append,
            threading.RLock(),
        )
        self.running = [self.begin(sequence) for sequence in sequences]

    def begin(self, sequence: int) -> Coroutine[Any, Any, None]:
        made = self.line_up(sequence)
        made.send(None)
        return made

    def line_up(self, sequence: int) -> Coroutine[Any, Any, None]:
        batch = msg.SequencedBatch(sequence, TARGET, sequence)
        effect = SendRequest(sequence, 1, msg.Produce("tx", 1, 0, -1, 1, (batch,)))
        self.requests.line_up(effect)
        return self.requests.carry_out(effect)

    def go_on(self, index: int) -> None:
        with suppress(StopIteration):
            self.running[index].send(None)

    def lose(self, index: int) -> None:
        with suppress(StopIteration):
            self.running[index].throw(LOST)

    @property
    def lost(self) -> list[tuple[int, bool]]:
        """Ids of the requests that were reported as lost, and whether they may have been sent."""
        return [(one.request_id, one.sent) for one in self.reported if isinstance(one, Unanswered)]


def test_batches_are_sent_in_their_order() -> None:
    script = Script(0, 50, 100)
    for index in range(3):
        script.go_on(index)
    assert (script.net.sent, script.lost) == ([0, 50, 100], [])


def test_a_batch_that_waits_for_a_connection_is_lost_with_the_one_before_it() -> None:
    script = Script(0, 50)
    script.go_on(0)
    script.lose(0)
    script.go_on(1)
    assert (script.net.sent, script.lost) == ([0], [(0, True), (50, False)])
    script.running = [script.begin(0), script.begin(50)]
    script.go_on(0)
    script.go_on(1)
    assert script.net.sent == [0, 0, 50]


def test_a_batch_that_the_core_sends_before_it_knows_of_a_loss_is_lost_too() -> None:
    script = Script(0)
    script.go_on(0)
    script.running.append(script.line_up(50))
    script.lose(0)
    script.go_on(1)
    script.go_on(1)
    assert (script.net.sent, script.lost) == ([0], [(0, True), (50, False)])


def test_a_batch_whose_predecessor_was_not_sent_is_lost_with_it() -> None:
    script = Script(0, 50)
    script.lose(0)
    script.go_on(1)
    assert (script.net.sent, script.lost) == ([], [(0, False), (50, False)])


def test_a_batch_does_not_overtake_another_on_the_way_to_a_connection() -> None:
    script = Script(0, 50)
    script.go_on(1)
    script.go_on(0)
    assert (script.net.sent, script.lost) == ([], [(50, False), (0, False)])
