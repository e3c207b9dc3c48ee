"""Rules that hold between the parts of a worker's core after every step. Pure.

Tests and the simulation check them after each step, a live worker on request. A broken rule is a bug of the core. The
invariants of exactly-once delivery, which compare several workers and Kafka, are in `docs/kip-618.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, Protocol, assert_never

from connectx.core.config_writer import Claim, ConfigWriter
from connectx.core.connectors import ConnectorLife, ConnectorPhase, Connectors
from connectx.core.context import Context, WorkerPhase
from connectx.core.fencing import FencingRounds, RoundPhase
from connectx.core.group.leadership import Leadership
from connectx.core.group.membership import Membership, MembershipState
from connectx.core.group.rebalance import Rebalance, RebalancePhase
from connectx.core.pending import RequestRead
from connectx.core.requests import RequestHandler
from connectx.core.rules import BrokenRule, Marks, Rules, broken_rules, gone_back
from connectx.core.signals import FencingOrigin, LocalWaiter, RequestOrigin, RequestWaiter
from connectx.core.tasks import BEFORE_ITS_START, TaskLife, TaskPhase, Tasks
from connectx.core.timer_keys import (
    ConnectorStopLimit,
    GroupTimer,
    TaskConfigsRetry,
    TaskCountRetry,
    TaskFencingRetry,
    TaskRestart,
    TaskStopLimit,
    TimerKey,
    WorkerTimer,
)


class Rule(StrEnum):
    """A rule of the core's state; the value is its sentence."""

    ASSIGNED_ONLY = "only assigned connectors and tasks run here; others are stopping"
    NEWEST_CONFIGS = "a task that has begun and is not stopping has the newest task configs of its connector"
    OWN_INSTANCE = "every instance has its own number, and none is above the last one that was given"
    STEP_IS_AWAITED = "a connector, task or fencing round that waits has a pending request, a round or a timer"
    REQUEST_IN_PHASE = "a task has a pending request only while it is fencing or verifying"
    UNIQUE_REQUESTS = "one part waits for each pending request, and none is above the last one that was given"
    TIMER_HAS_OWNER = "every awaited timer belongs to something that still waits for it"
    QUEUE_MOVES = "the first write waits for an answer or for the claim, later writes wait for the first"
    LEADER_HAS_LIMIT = "a claim or a write of the leader's producer has a limit"
    SIGNALS_ROUTED = "no signal between parts is left after a step"
    REPLIES_ARE_DUE = "a reply that is prepared belongs to a write or fencing round in progress"
    RIGHTS_OF_LEADER = "only the leader claims the config topic or runs fencing rounds"
    CLAIM_IS_AWAITED = "a pending claim has a pending request or a timer"
    SETTLED_MEMBER = "a settled worker has an assignment of its present generation and no rebalance under way"
    MEMBER_CONTINUES = "a member that waits for the coordinator has a pending request or a timer"
    STOPPED_IS_EMPTY = "a stopped worker has no work, no pending request and no place in the group"
    NEVER_BACK = "time, the config offset and the numbers that were given never go back"


class Parts(Protocol):
    """The parts of a core, as `WorkerCore` has them."""

    context: Context
    membership: Membership
    writer: ConfigWriter
    fencing: FencingRounds
    leadership: Leadership
    connectors: Connectors
    tasks: Tasks
    rebalance: Rebalance
    requests: RequestHandler


def marks_of(core: Parts) -> Marks:
    """Return what `broken_by` compares after the next step."""
    context, member = core.context, core.membership
    return {
        "now_ms": context.now_ms,
        "config_offset": context.config.offset,
        "last_request_id": context.pending.last_id,
        "last_instance": context.last_instance,
        "last_timer": context.timers.last_token,
        "last_group_request": member.last_request_id,
        "last_group_timer": member.timers.last_token,
    }


def broken_by(core: Parts, before: Marks | None = None) -> tuple[BrokenRule, ...]:
    """Return the rules that do not hold, none for a sound core."""
    back = () if before is None else gone_back(Rule.NEVER_BACK, before, marks_of(core))
    return (*broken_rules(_RULES, core), *back)


def _assigned_only(core: Parts) -> Iterator[str]:
    work = core.context.group.work
    for connector, life in core.connectors.lives.items():
        if life.phase is not ConnectorPhase.STOPPING and connector not in work.connectors:
            yield f"connector {connector} is {life.phase} and not assigned"
    for task, task_life in core.tasks.lives.items():
        if task_life.phase is not TaskPhase.STOPPING and task not in work.tasks:
            yield f"task {task} is {task_life.phase} and not assigned"


def _newest_configs(core: Parts) -> Iterator[str]:
    if core.context.phase is not WorkerPhase.RUNNING:
        return
    for task, life in core.tasks.lives.items():
        if life.phase is TaskPhase.STOPPING or (life.exactly_once and life.phase in BEFORE_ITS_START):
            continue  # newer configs refuse a task before it begins
        newest = core.context.config.task_config_generation(task.connector)
        if life.task_config_generation != newest:
            yield f"task {task} is {life.phase} with configs {life.task_config_generation}, the newest are {newest}"


def _own_instance(core: Parts) -> Iterator[str]:
    numbers = [life.instance for life in core.connectors.lives.values()]
    numbers += [life.instance for life in core.tasks.lives.values()]
    if len(set(numbers)) < len(numbers):
        yield f"instances {sorted(numbers)}"
    if numbers and max(numbers) > core.context.last_instance:
        yield f"instance {max(numbers)} is above {core.context.last_instance}"


def _step_is_awaited(core: Parts) -> Iterator[str]:
    is_set = core.context.timers.is_set
    for connector, life in core.connectors.lives.items():
        if life.phase is ConnectorPhase.STOPPING and not is_set(ConnectorStopLimit(connector, life.instance)):
            yield f"connector {connector} stops without a limit"
    in_rounds = {waiter for a_round in core.fencing.rounds.values() for waiter in a_round.waiters}
    for task, task_life in core.tasks.lives.items():
        number = task_life.instance
        match task_life.phase:
            case TaskPhase.STOPPING if not is_set(TaskStopLimit(task, number)):
                yield f"task {task} stops without a limit"
            case TaskPhase.VERIFYING if task_life.request_id is None:
                yield f"task {task} verifies its start and reads nothing"
            case TaskPhase.FENCING:
                in_round = LocalWaiter(task, number) in in_rounds
                if task_life.request_id is None and not in_round and not is_set(TaskFencingRetry(task, number)):
                    yield f"task {task} waits for a fencing round that no one runs"
            case _:  # the others wait for a report
                pass
    yield from _rounds_are_awaited(core)


def _rounds_are_awaited(core: Parts) -> Iterator[str]:
    origins = {write.origin for write in core.writer.queue}
    for connector, a_round in core.fencing.rounds.items():
        if a_round.phase is not RoundPhase.RECORDING:
            if a_round.request_id is None:
                yield f"the round of {connector} is {a_round.phase} and waits for no answer"
            continue
        retries = core.context.timers.is_set(TaskCountRetry(connector, a_round.round_id))
        if not retries and FencingOrigin(a_round.round_id) not in origins:
            yield f"the round of {connector} records nothing"


def _request_in_phase(core: Parts) -> Iterator[str]:
    for task, life in core.tasks.lives.items():
        if life.request_id is not None and life.phase not in (TaskPhase.FENCING, TaskPhase.VERIFYING):
            yield f"task {task} is {life.phase} and waits for request {life.request_id}"
    for connector, host in core.connectors.lives.items():
        if host.request_id is not None and host.phase is ConnectorPhase.STOPPING:
            yield f"connector {connector} is stopping and waits for request {host.request_id}"


def pending_requests(core: Parts) -> list[int]:
    """Return the ids of the requests that parts wait for, each as often as a part does."""
    ids = [core.rebalance.read_request, core.leadership.claim_request, core.leadership.key_request]
    ids += [write.request_id for write in core.writer.queue]
    ids += [life.request_id for life in core.tasks.lives.values()]
    ids += [life.request_id for life in core.connectors.lives.values()]
    ids += [a_round.request_id for a_round in core.fencing.rounds.values()]
    reads = (number for number, waiting in core.context.pending.waiting.items() if isinstance(waiting, RequestRead))
    return [*(number for number in ids if number is not None), *reads]


def _unique_requests(core: Parts) -> Iterator[str]:
    numbers = pending_requests(core)
    pending = core.context.pending
    if sorted(numbers) != sorted(pending.waiting):
        yield f"parts wait for requests {sorted(numbers)}, pending are {sorted(pending.waiting)}"
    if numbers and not 0 < min(numbers) <= max(numbers) <= pending.last_id:
        yield f"pending requests {sorted(numbers)}, the last is {pending.last_id}"
    member = core.membership
    for number in (member.request_id, member.heartbeat_request_id):
        if number is not None and not 0 < number <= member.last_request_id:
            yield f"pending group request {number}, the last is {member.last_request_id}"


def _timer_has_owner(core: Parts) -> Iterator[str]:
    for key in core.context.timers.awaited:
        if not _has_owner(core, key):
            yield f"timer {key}"
    state = core.membership.state
    for key in core.membership.timers.awaited:
        if not isinstance(key, GroupTimer) or state not in _STATES_OF_TIMER[key]:
            yield f"timer {key} of a member that is {state}"


def _has_owner(core: Parts, key: TimerKey) -> bool:
    claim = core.writer.claim
    match key:
        case TaskStopLimit(task, instance) | TaskFencingRetry(task, instance) | TaskRestart(task, instance):
            life = core.tasks.lives.get(task)
            return life is not None and life.instance == instance
        case ConnectorStopLimit(connector, instance) | TaskConfigsRetry(connector, instance):
            host = core.connectors.lives.get(connector)
            return host is not None and host.instance == instance
        case TaskCountRetry(connector, round_id):
            a_round = core.fencing.rounds.get(connector)
            return a_round is not None and a_round.round_id == round_id
        case WorkerTimer.REBALANCE_DELAY:
            return True
        case WorkerTimer.MISMATCH:
            return core.rebalance.phase is RebalancePhase.SYNCING
        case WorkerTimer.CONFIG_READ:
            return core.rebalance.phase is RebalancePhase.UNSYNCED
        case WorkerTimer.RECLAIM:
            return claim is Claim.PENDING
        case WorkerTimer.CLAIM_LIMIT:
            return core.leadership.claim_request is not None
        case WorkerTimer.WRITE_LIMIT:
            return _is_with_leader(core)
        case WorkerTimer.SESSION_KEY | WorkerTimer.EMPTY_STOPPED:
            return claim is not Claim.NONE
        case GroupTimer():
            return False
        case _:
            assert_never(key)


_HEARTBEATS: Final = (
    MembershipState.PREPARING,
    MembershipState.WAITING,
    MembershipState.ELECTED,
    MembershipState.SYNCING,
    MembershipState.STABLE,
)
_STATES_OF_TIMER: Final[Mapping[GroupTimer, tuple[MembershipState, ...]]] = {
    GroupTimer.HEARTBEAT: _HEARTBEATS,
    GroupTimer.SESSION: (*_HEARTBEATS, MembershipState.FINDING),
    GroupTimer.RETRY: (MembershipState.FINDING, MembershipState.WAITING),
    GroupTimer.UNKNOWN: (MembershipState.FINDING,),
}


def _queue_moves(core: Parts) -> Iterator[str]:
    for number, write in enumerate(core.writer.queue):
        if number > 0 and write.request_id is not None:
            yield f"write {number} ({write.kind} of {write.connector!r}) does not wait for the first"
        if number == 0 and write.request_id is None:
            waits = write.next_batch < len(write.batches) and write.batches[write.next_batch].privileged
            if not waits or core.writer.claim is not Claim.PENDING:
                yield f"the first write ({write.kind} of {write.connector!r}) waits for nothing"


def _leader_has_limit(core: Parts) -> Iterator[str]:
    is_set = core.context.timers.is_set
    if core.leadership.claim_request is not None and not is_set(WorkerTimer.CLAIM_LIMIT):
        yield "a claim without a limit"
    if _is_with_leader(core) and not is_set(WorkerTimer.WRITE_LIMIT):
        yield "a write without a limit"


def _is_with_leader(core: Parts) -> bool:
    """True while the leader's producer carries out the first write."""
    for write in core.writer.queue[:1]:
        is_writing = write.request_id is not None and not write.reading
        return is_writing and core.writer.is_transactional(write.batches[write.next_batch])
    return False


def _signals_routed(core: Parts) -> Iterator[str]:
    for signal in core.context.signals:
        yield f"{signal}"


def _replies_are_due(core: Parts) -> Iterator[str]:
    written = {write.origin for write in core.writer.queue}
    for request_id in core.requests.planned:
        if RequestOrigin(request_id) not in written:
            yield f"request {request_id} waits for a write that does not exist"
    waiting = {waiter for a_round in core.fencing.rounds.values() for waiter in a_round.waiters}
    for request_id in core.requests.fencing_offsets:
        if RequestWaiter(request_id) not in waiting:
            yield f"request {request_id} waits for a fencing round that does not exist"
    if (restarts := restarts_awaited(core)) != sorted(core.requests.restarting):
        yield f"requests {sorted(core.requests.restarting)} restart something, starts are awaited by {restarts}"


def restarts_awaited(core: Parts) -> list[int]:
    """Return the requests that connectors and tasks are to answer, each as often as one does."""
    lives: list[ConnectorLife | TaskLife] = [*core.connectors.lives.values(), *core.tasks.lives.values()]
    again = [life.again.waiters for life in lives if life.again is not None]
    return sorted(request_id for waiters in (*again, *(life.waiters for life in lives)) for request_id in waiters)


def _rights_of_leader(core: Parts) -> Iterator[str]:
    if core.context.group.is_leader:
        return
    if core.writer.claim is not Claim.NONE:
        yield f"the claim is {core.writer.claim}"
    for connector in core.fencing.rounds:
        yield f"a fencing round of {connector}"


def _claim_is_awaited(core: Parts) -> Iterator[str]:
    claim, leadership = core.writer.claim, core.leadership
    if claim is Claim.PENDING:
        if leadership.claim_request is None and not core.context.timers.is_set(WorkerTimer.RECLAIM):
            yield "the claim is pending, and nothing claims it"
    elif leadership.claim_request is not None:
        yield f"the claim is {claim}, and request {leadership.claim_request} claims it"


def _settled_member(core: Parts) -> Iterator[str]:
    view, member = core.context.group, core.membership
    if not view.settled:
        return
    if core.context.phase is not WorkerPhase.RUNNING or core.rebalance.phase is not RebalancePhase.SETTLED:
        yield f"the worker is {core.context.phase}, its rebalance {core.rebalance.phase}"
    if view.assignment is None:
        yield "there is no assignment"
    if (view.member_id, view.generation) != (member.member_id, member.generation):
        theirs, ours = (view.member_id, view.generation), (member.member_id, member.generation)
        yield f"the assignment is of {theirs}, the member is {ours}"
    if member.state not in (MembershipState.STABLE, MembershipState.FINDING):
        yield f"the member is {member.state}"


def _member_continues(core: Parts) -> Iterator[str]:
    member = core.membership
    has_request, is_set = member.request_id is not None, member.timers.is_set
    match member.state:
        case MembershipState.JOINING | MembershipState.SYNCING:
            continues = has_request
        case MembershipState.FINDING:
            continues = has_request or is_set(GroupTimer.RETRY)
        case MembershipState.WAITING:
            continues = is_set(GroupTimer.RETRY)
        case MembershipState.STABLE:
            continues = is_set(GroupTimer.HEARTBEAT) and is_set(GroupTimer.SESSION)
        case _:
            continues = True
    if not continues:
        yield f"the member is {member.state} and waits for nothing"


def _stopped_is_empty(core: Parts) -> Iterator[str]:
    if core.context.phase is not WorkerPhase.STOPPED:
        return
    work = (core.connectors.lives, core.tasks.lives, core.fencing.rounds, core.writer.queue)
    is_asked = any(isinstance(waiting, RequestRead) for waiting in core.context.pending.waiting.values())
    if any(work) or is_asked:
        yield "it has work left"
    if core.membership.state is not MembershipState.STOPPED:
        yield f"the member is {core.membership.state}"


_RULES: Final[Rules[Rule, Parts]] = {
    Rule.ASSIGNED_ONLY: _assigned_only,
    Rule.NEWEST_CONFIGS: _newest_configs,
    Rule.OWN_INSTANCE: _own_instance,
    Rule.STEP_IS_AWAITED: _step_is_awaited,
    Rule.REQUEST_IN_PHASE: _request_in_phase,
    Rule.UNIQUE_REQUESTS: _unique_requests,
    Rule.TIMER_HAS_OWNER: _timer_has_owner,
    Rule.QUEUE_MOVES: _queue_moves,
    Rule.LEADER_HAS_LIMIT: _leader_has_limit,
    Rule.SIGNALS_ROUTED: _signals_routed,
    Rule.REPLIES_ARE_DUE: _replies_are_due,
    Rule.RIGHTS_OF_LEADER: _rights_of_leader,
    Rule.CLAIM_IS_AWAITED: _claim_is_awaited,
    Rule.SETTLED_MEMBER: _settled_member,
    Rule.MEMBER_CONTINUES: _member_continues,
    Rule.STOPPED_IS_EMPTY: _stopped_is_empty,
}
