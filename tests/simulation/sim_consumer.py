"""The consumer of a sink task in virtual time: a client of its group's coordinator, with heartbeats of its own.

Eager rebalancing with the range assignor, as librdkafka does it: a rebalance, or the loss of the membership, waits for
the task's next poll. It goes on while the worker's core stands still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectx.core.group_messages import (
    GroupStimulus,
    HeartbeatReplied,
    JoinGroupReplied,
    SendHeartbeat,
    SendJoinGroup,
    SendLeaveGroup,
    SendSyncGroup,
    SyncGroupReplied,
)
from connectx.model.ids import TopicPartition
from tests.simulation.broker_coordinator import Answers, Coordinator, Subscription
from tests.simulation.broker_logs import Outcome
from tests.simulation.connections import REQUEST_TIMEOUT_MS, deliver_late

if TYPE_CHECKING:
    from tests.simulation.sim_sink import SimSink

SESSION_MS = 3_000
REBALANCE_MS = 6_000
HEARTBEAT_MS = 700
AGAIN_MS = 50
Request = SendJoinGroup | SendSyncGroup | SendHeartbeat | SendLeaveGroup
LOST = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")


class SimConsumer:
    """`pending` waits for a poll: "assigned", "revoked" or "lost", with the partitions."""

    def __init__(self, task: SimSink, group_id: str, topics: dict[str, int]) -> None:
        self.task = task
        self.world = task.world
        self.group_id = group_id
        self.client = f"{task.worker.name}/{task.order.task}#{task.order.instance}"
        self.world.clients[self.client] = self
        self.topics = topics
        self.member_id = ""
        self.generation = -1
        self.node = self.group.find()
        self.stable = False
        self.closed = False
        self.owned: tuple[TopicPartition, ...] = ()
        self.pending: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.request_id = 0
        self.asked: tuple[Request, int] | None = None  # the last JoinGroup or SyncGroup, and the node that it went to
        self.asked_ms = self.heard_ms = self.world.now_ms
        self.join()
        self.world.at(HEARTBEAT_MS, self.beat)

    @property
    def group(self) -> Coordinator:
        return self.world.broker.group(self.group_id)

    def join(self) -> None:
        self.stable = False
        self.asked_ms = self.world.now_ms
        offers = (Subscription(tuple(self.topics)),)
        self.ask(SendJoinGroup(self.next_id(), self.member_id, SESSION_MS, REBALANCE_MS, offers))  # type: ignore[arg-type]

    def next_id(self) -> int:
        self.request_id += 1
        return self.request_id

    def ask(self, request: Request) -> None:
        """Send a request; one that gets stuck is lost with its connection."""
        node = self.node
        if not isinstance(request, SendHeartbeat):
            self.asked = request, node
        if self.world.is_stuck():
            self.world.at(REQUEST_TIMEOUT_MS, lambda: self.lose_request(request, node))
        else:
            self.world.at(self.world.latency_ms(), lambda: self.arrive(request, node))

    def arrive(self, request: Request, node: int) -> None:
        if self.closed or self.task.dead or not self.task.worker.sends or self.world.broker_down:
            self.lose_request(request, node)
        else:
            self.reach(self.client, request, node)

    def cut(self) -> None:
        """Lose the connection: a JoinGroup or SyncGroup that waits is not answered, and is sent again."""
        if self.asked is not None and not self.stable and not self.closed:
            self.lose_request(*self.asked)
            self.next_id()
            self.world.at(AGAIN_MS, self.join_if_needed)

    def lose_request(self, request: Request, node: int) -> None:
        """It may arrive later, and is not answered: the next heartbeat notices that time is over."""
        deliver_late(self.world, lambda: self.reach(None, request, node))

    def reach(self, client: str | None, request: Request, node: int) -> None:
        """A request arrives at the node that was coordinator when it was sent; without a client it is not answered."""
        self.world.broker.set_time(self.world.now_ms)
        answers: Answers
        match request:
            case SendJoinGroup():
                answers = self.group.join(client, request, node)
            case SendSyncGroup():
                answers = self.group.sync(client, request, node)
            case SendHeartbeat():
                answers = self.group.heartbeat(client, request, node)
            case SendLeaveGroup():
                answers = self.group.leave(request.member_id, node)
        self.world.hand_out(answers)

    def beat(self) -> None:
        """The client's own thread: a heartbeat, or the join again when nothing was heard of it."""
        if self.closed or self.task.dead or self.task.ended:
            return
        self.world.at(HEARTBEAT_MS, self.beat)
        if self.task.worker.tasks_frozen:
            return
        now_ms = self.world.now_ms
        if self.stable and now_ms - self.heard_ms > SESSION_MS:
            self.lose()
        elif self.stable:
            self.ask(SendHeartbeat(self.next_id(), self.generation, self.member_id))
        elif now_ms - self.asked_ms > REBALANCE_MS + SESSION_MS:
            self.node = self.group.find()
            self.join_if_needed()

    def leave(self) -> None:
        """LeaveGroup, if it can be sent."""
        self.closed = True
        request, node = SendLeaveGroup(self.next_id(), self.member_id), self.node
        if not self.member_id:
            return
        if self.task.worker.sends and not self.world.broker_down and not self.world.is_stuck():
            self.reach(None, request, node)
        else:
            self.lose_request(request, node)

    @property
    def membership(self) -> tuple[str, int]:
        """Member id and generation, as a request carries them."""
        return self.member_id, self.generation

    def commit(self, membership: tuple[str, int], node: int, offsets: dict[TopicPartition, int]) -> Outcome:
        """Offset commit; nothing in Kafka asks whether this member owns the partitions.

        The client itself refuses once it knows that its assignment is lost (librdkafka: _ASSIGNMENT_LOST): without a
        member id a group that is empty would take it as an admin's.
        """
        member_id, generation = membership
        if not member_id:
            return Outcome.UNKNOWN_MEMBER
        named = {(p.topic, p.partition): offset for p, offset in offsets.items()}
        outcome = self.group.commit_offsets(member_id, generation, named, node)
        if outcome is Outcome.OK:
            self.world.checks.sinks.on_commit(self, member_id, offsets)
        return outcome

    def on_committed(self, outcome: Outcome) -> None:
        """A commit was answered."""
        if outcome is Outcome.NOT_COORDINATOR:
            self.node = self.group.find()
        elif outcome is Outcome.OK:
            self.heard_ms = self.world.now_ms

    def hear(self, reply: GroupStimulus) -> None:
        """A reply is on its way, unless it gets lost."""
        if self.task.worker.receives and not self.world.broker_down and not self.world.loses_reply():
            self.world.at(self.world.latency_ms(), lambda: self.take(reply))

    def take(self, reply: GroupStimulus) -> None:
        if self.closed or self.task.dead:
            return
        if self.task.worker.tasks_frozen:
            self.task.held.append(lambda: self.take(reply))
        elif isinstance(reply, HeartbeatReplied):
            self.on_heartbeat(reply.error)
        elif reply.request_id == self.request_id and not self.stable:
            self.on_join(reply) if isinstance(reply, JoinGroupReplied) else self.on_sync(reply)

    def on_heartbeat(self, error: str | None) -> None:
        if not self.stable:
            return
        self.heard_ms = self.world.now_ms if error in (None, "REBALANCE_IN_PROGRESS") else self.heard_ms
        if error == "REBALANCE_IN_PROGRESS":
            self.stable = False
            self.emit("revoked", self.owned)
        elif error in LOST:
            self.lose()
        elif error == "NOT_COORDINATOR":
            self.node = self.group.find()

    def on_join(self, reply: JoinGroupReplied) -> None:
        if reply.error is not None:
            self.again(reply.error, reply.member_id)
            return
        self.member_id, self.generation = reply.member_id, reply.generation
        shares = self.shares(sorted(reply.members)) if reply.leader_id == reply.member_id else {}
        self.ask(SendSyncGroup(self.next_id(), self.generation, self.member_id, shares))

    def on_sync(self, reply: Any) -> None:
        assert isinstance(reply, SyncGroupReplied), f"{reply} came to a consumer"
        if reply.error is not None:
            self.again(reply.error, self.member_id)
            return
        self.stable = True
        self.heard_ms = self.world.now_ms
        self.owned = tuple(reply.assignment or ())  # type: ignore[arg-type]
        self.emit("assigned", self.owned)

    def again(self, error: str, member_id: str) -> None:
        """What an error means that join and sync share: ask once more."""
        self.member_id = "" if error == "UNKNOWN_MEMBER_ID" else member_id
        if error == "NOT_COORDINATOR":
            self.node = self.group.find()
        self.world.at(AGAIN_MS, self.join_if_needed)

    def join_if_needed(self) -> None:
        """Join, unless the task has to give up partitions first."""
        if not (self.closed or self.task.dead or self.stable or self.pending or self.task.rebalancing):
            self.join()

    def shares(self, members: list[str]) -> dict[str, Any]:
        """Each topic by ranges (Kafka: RangeAssignor)."""
        shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic, partitions in sorted(self.topics.items()):
            each, more = divmod(partitions, len(members))
            first = 0
            for number, member in enumerate(members):
                count = each + (number < more)
                shares[member] += [TopicPartition(topic, n) for n in range(first, first + count)]
                first += count
        return {member: tuple(partitions) for member, partitions in shares.items()}

    def lose(self) -> None:
        self.stable = False
        self.member_id, self.generation = "", -1
        self.emit("lost", self.owned)

    def emit(self, what: str, partitions: tuple[TopicPartition, ...]) -> None:
        self.pending.append((what, partitions))
        self.task.continue_poll()

    def carried_out(self, what: str) -> None:
        """The task has taken a rebalance in: join again if it gave its partitions up."""
        if what != "assigned":
            self.owned = ()
            if not self.closed and not self.pending:
                self.join()
