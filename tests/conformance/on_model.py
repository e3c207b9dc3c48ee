"""The verbs on the model broker."""

from __future__ import annotations

from collections.abc import Sequence

from connectx.core.group_messages import GroupStimulus, SendHeartbeat, SendJoinGroup
from connectx.core.producer import messages as msg
from connectx.model.ids import TopicPartition
from tests.conformance.groups import Groups, Request
from tests.conformance.producers import Producers
from tests.conformance.requests import Requests
from tests.simulation.broker import Broker
from tests.simulation.broker_coordinator import Answers
from tests.simulation.broker_requests import TransactionalBroker
from tests.simulation.direct_producer import DirectProducer

START_MS = 1_000_000
STEP_MS = 100
LIMIT_MS = 20_000
TOPIC = "t"


class GroupsOnModel(Groups):
    """Time passes only in `expires`."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.group = self.broker.group("g")
        self.now_ms = START_MS
        self.broker.set_time(self.now_ms)
        self.node = self.group.find()
        self.inboxes: dict[str, list[GroupStimulus]] = {}

    def send(self, who: str, request: Request, *, is_late: bool = False) -> None:
        client = None if is_late else who
        if isinstance(request, SendJoinGroup):
            self._hand_out(self.group.join(client, request, self.node))
        elif isinstance(request, SendHeartbeat):
            self._hand_out(self.group.heartbeat(client, request, self.node))
        else:
            self._hand_out(self.group.sync(client, request, self.node))

    def receive(self, who: str) -> GroupStimulus:
        return self.inboxes[who].pop(0)

    def leaves(self, who: str) -> None:
        self._hand_out(self.group.leave(self.clients[who].member_id, self.node))

    def expires(self, who: str) -> None:
        end_ms = self.now_ms + LIMIT_MS
        member_id = self.clients[who].member_id
        while member_id in self.group.members or member_id in self.group.promised:
            self.now_ms += STEP_MS
            assert self.now_ms <= end_ms, f"{who} does not expire"
            self.broker.set_time(self.now_ms)
            self._hand_out(self.group.expire())

    def moves(self, who: str) -> None:
        self.broker.move_coordinator("g")
        self.inboxes.clear()
        self.node = self.group.find()

    def commit(self, member_id: str, generation: int, offset: int) -> str:
        return self.group.commit_offsets(member_id, generation, {(TOPIC, 0): offset}, self.node).value

    def offset(self) -> int | None:
        return self.group.committed(TOPIC, 0)

    def _hand_out(self, answers: Answers) -> None:
        for name, reply in answers:
            self.inboxes.setdefault(name, []).append(reply)


class ProducersOnModel(Producers):
    """Time passes only in `expires`."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.now_ms = START_MS
        self.broker.set_time(self.now_ms)
        self.producers: dict[str, DirectProducer] = {}

    @property
    def transactions(self) -> TransactionalBroker:
        return self.broker.transactions

    def init(self, who: str, transactional_id: str, timeout_ms: int) -> str:
        self.producers[who] = DirectProducer(transactional_id, timeout_ms)
        self.producers[who].init(self.transactions)
        return f"epoch {self.producers[who].epoch}"

    def begins(self, who: str) -> str:
        return self.producers[who].begin(self.transactions).value

    def send(self, who: str, partition: int, values: list[str]) -> str:
        return self.producers[who].send(self.transactions, TopicPartition(TOPIC, partition), values).value

    def commits(self, who: str) -> str:
        return self.producers[who].end(self.transactions, commit=True).value

    def aborts(self, who: str) -> str:
        return self.producers[who].end(self.transactions, commit=False).value

    def epoch(self, transactional_id: str) -> int:
        return self.transactions.epochs[transactional_id]

    def fence(self, transactional_id: str) -> None:
        DirectProducer(transactional_id).init(self.transactions)

    def expires(self, who: str) -> None:
        end_ms = self.now_ms + LIMIT_MS
        while who not in self.transactions.expire():
            self.now_ms += STEP_MS
            assert self.now_ms <= end_ms, f"{who} does not expire"
            self.broker.set_time(self.now_ms)
        self.transactions.write_markers(who)

    def send_plain(self, partition: int, values: list[str]) -> None:
        self.broker.append(TOPIC, partition, values)

    def read(self, partition: int, *, committed: bool) -> list[tuple[int, str]]:
        return self.broker.read(TOPIC, partition, 0, committed)

    def ends_of(self, partition: int) -> tuple[int, int]:
        return self.broker.last_stable(TOPIC, partition), self.broker.end(TOPIC, partition)

    def rolls(self, who: str, value: str) -> None:
        self.send_plain(0, [value])

    def await_cleaner(self) -> None:
        self.broker.compact(TOPIC, lambda value: value.split("=")[0])

    def moves(self, who: str) -> None:
        """Nothing of a transactional id is lost, and no client waits."""
        self.transactions.move_coordinator()


class RequestsOnModel(Requests):
    """Markers are written by `settle`."""

    name = "tx"
    topic = TOPIC

    def __init__(self) -> None:
        super().__init__()
        self.broker = TransactionalBroker()

    def ask(self, request: msg.Request, values: Sequence[str] = ()) -> msg.Answer:
        return self.broker.handle(self.broker.coordinator, request, {1: values})

    def settle(self) -> None:
        self.broker.write_markers(self.name)

    def read(self, *, committed: bool) -> list[tuple[int, str]]:
        return self.broker.log(TopicPartition(TOPIC, 0)).read(0, committed=committed)
