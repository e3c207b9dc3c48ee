"""What the REST client asks, tries again and raises, over real sockets."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from connectx.core import verbs
from connectx.core.messages import Done, Refused, Reply
from connectx.core.replies import ConnectorInfo, ConnectorState, ConnectorStatus, Expanded, TaskInfo, UsedTopics
from connectx.core.verbs import Verb
from connectx.errors.clusters import WorkerStoppedError
from connectx.errors.rest import (
    ConfigRejectedError,
    ConnectorExistsError,
    ConnectorNotFoundError,
    RebalancePendingError,
    RestError,
    SignatureRefusedError,
    WorkerNotReadyError,
    WorkersUnreachableError,
)
from connectx.model.config_records import SessionKeyRecord
from connectx.model.states import ConnectorType, TargetState
from connectx.rest.client import InternalClient, RestClient

Serve = Callable[..., Any]

KEY = SessionKeyRecord(bytes(range(32)), "HmacSHA256", 0)
INFO: ConnectorInfo = {"name": "f1", "config": {"name": "f1", "k": "v"}, "tasks": [], "type": "source"}
RUNNING: ConnectorState = {"state": "RUNNING", "worker_id": "127.0.0.1:1", "version": None}
STATUS: ConnectorStatus = {"name": "f1", "connector": RUNNING, "tasks": [], "type": "source"}
NAME = "a/b ü"


@pytest.fixture
def connect() -> Iterator[Callable[..., RestClient]]:
    """Clients that are closed after the test."""
    clients: list[RestClient] = []

    def make(*workers: Any, retry_s: float = 0) -> RestClient:
        clients.append(
            RestClient([worker if isinstance(worker, str) else worker.url for worker in workers], retry_s=retry_s)
        )
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def silent_url() -> Iterator[str]:
    """A worker that takes each request and hangs up without an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def dead_url(serve: Serve) -> str:
    """A port where nobody listens any more."""
    worker = serve()
    worker.server.abandon()
    return str(worker.url)


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        (lambda c: c.info(NAME), verbs.ConnectorInfo(NAME)),
        (lambda c: c.config(NAME), verbs.ConnectorConfig(NAME)),
        (lambda c: c.status(NAME), verbs.ConnectorStatus(NAME)),
        (lambda c: c.task_status(NAME, 2), verbs.TaskStatus(NAME, 2)),
        (lambda c: c.pause(NAME), verbs.Pause(NAME)),
        (lambda c: c.resume(NAME), verbs.Resume(NAME)),
        (lambda c: c.stop(NAME), verbs.Stop(NAME)),
        (lambda c: c.restart(NAME), verbs.RestartConnector(NAME)),
        (
            lambda c: c.restart(NAME, include_tasks=True, only_failed=True),
            verbs.RestartConnector(NAME, include_tasks=True, only_failed=True),
        ),
        (lambda c: c.restart_task(NAME, 1), verbs.RestartTask(NAME, 1)),
        (lambda c: c.reset_topics(NAME), verbs.ResetTopics(NAME)),
        (
            lambda c: c.put_config(NAME, {"k": "ü", "n": None}),
            verbs.PutConfig(NAME, {"k": "ü", "n": None, "name": NAME}),
        ),
    ],
)
def test_a_method_is_one_verb_whatever_the_name_holds(
    serve: Serve, connect: Callable[..., RestClient], call: Callable[[RestClient], object], asked: Verb
) -> None:
    worker = serve()
    call(connect(worker))
    assert worker.core.asked == [asked]


def test_a_connector_that_was_deleted_since_it_was_listed_is_left_out(
    serve: Serve, connect: Callable[..., RestClient]
) -> None:
    shown: dict[str, Expanded] = {"f1": {"info": INFO, "status": STATUS}}
    answers = {
        verbs.ListConnectors: lambda verb: Done(1, 200, shown if verb.expand else ["f1", "f2", "gone"]),
        verbs.ConnectorInfo: lambda verb: (
            Done(1, 200, INFO) if verb.connector == "f2" else Refused(1, 404, "not found")
        ),
    }
    assert connect(serve(answers)).expanded() == {**shown, "f2": {"info": INFO}}


def test_answers_come_back_as_plain_values(serve: Serve, connect: Callable[..., RestClient]) -> None:
    permitted = Done(1, 200, {"type": "sink", "config": {}})
    expanded: dict[str, Expanded] = {"f1": {}}
    tasks: list[TaskInfo] = [{"id": {"connector": "f1", "task": 0}, "config": {}}]
    topics: dict[str, UsedTopics] = {NAME: {"topics": ["t2", "t1"]}}
    answers = {
        verbs.ListConnectors: lambda verb: Done(1, 200, expanded if verb.expand else ["b", "a"]),
        verbs.Create: Done(1, 201, INFO),
        verbs.Tasks: Done(1, 200, tasks),
        verbs.Topics: Done(1, 200, topics),
        verbs.Offsets: permitted,
        verbs.ModifyOffsets: permitted,
        verbs.ConnectorConfig: Done(1, 200, {"name": NAME, "old": "1"}),
    }
    worker = serve(answers)
    client = connect(worker)
    assert client.connectors() == ["a", "b"]
    assert client.create("f1", {"k": "v"}, initial_state="STOPPED") == INFO
    assert worker.core.asked[-2].initial_state is TargetState.STOPPED
    assert client.tasks(NAME) == [{"id": {"connector": "f1", "task": 0}, "config": {}}]
    assert client.topics(NAME) == ["t1", "t2"]
    assert client.offsets(NAME) == [{"partition": {"filename": "a"}, "offset": {"position": 7}}]
    assert client.alter_offsets(NAME, [{"partition": {}, "offset": None}]).endswith("altered successfully")
    assert client.reset_offsets(NAME).endswith("reset successfully")
    assert [call[:3] for call in worker.services.calls if call[0] == "reset"] == [("reset", NAME, ConnectorType.SINK)]
    client.patch_config(NAME, {"old": None, "new": "2"})
    assert worker.core.asked[-1].config == {"name": NAME, "new": "2"}
    assert client.validate({"connector.class": "X"})["error_count"] == 0
    assert client.plugins()[0]["class"] == "FileStreamSource"
    assert client.plugin_config("FileStreamSource")[0]["name"] == "file"
    assert client.root()["kafka_cluster_id"] == "abc"


@pytest.mark.parametrize("call", [lambda c: c.info(NAME), lambda c: c.config(NAME)])
def test_an_answer_of_another_shape_is_no_kafka_connect(
    serve: Serve, connect: Callable[..., RestClient], call: Callable[[RestClient], object]
) -> None:
    other = Done(1, 200, ["a list"])
    client = connect(serve({verbs.ConnectorInfo: other, verbs.ConnectorConfig: other}))
    with pytest.raises(RestError) as caught:
        call(client)
    assert caught.value.status == 200


def test_create_and_delete_return_when_the_asked_worker_has_read_them(
    serve: Serve, connect: Callable[..., RestClient]
) -> None:
    missing, there = Refused(1, 404, "Connector f1 not found"), Done(1, 200, INFO)
    replies = iter([missing, there, there, missing])
    answers = {
        verbs.Create: Done(1, 201, INFO),
        verbs.Delete: Done(1, 204),
        verbs.ConnectorInfo: lambda *_: next(replies),
    }
    worker = serve(answers)
    client = connect(worker)
    client.create("f1", {})
    client.delete("f1")
    info = verbs.ConnectorInfo
    assert worker.core.verbs() == [verbs.Create, info, info, verbs.Delete, info, info]


def test_a_dead_worker_is_passed_over(serve: Serve, connect: Callable[..., RestClient], dead_url: str) -> None:
    worker = serve({verbs.Stop: Done(1, 204)})
    connect(dead_url, worker).stop("f1")
    assert worker.core.verbs() == [verbs.Stop]


def test_workers_are_asked_for_anew_at_each_attempt(serve: Serve, dead_url: str) -> None:
    worker = serve({verbs.Stop: Done(1, 204)})
    rounds = iter([[], [dead_url], [worker.url]])
    RestClient(lambda: next(rounds), retry_s=60).stop("f1")
    assert worker.core.verbs() == [verbs.Stop]


def test_no_worker_at_all_is_an_error_that_names_the_last_one(
    connect: Callable[..., RestClient], dead_url: str
) -> None:
    with pytest.raises(WorkersUnreachableError, match=dead_url):
        connect(dead_url).stop("f1")
    with pytest.raises(WorkersUnreachableError, match="no worker to ask"):
        connect().stop("f1")


def test_a_rebalance_is_waited_for(serve: Serve, connect: Callable[..., RestClient]) -> None:
    replies = iter([Refused(1, 409, "rebalance"), Refused(1, 503, "starting"), Done(1, 204)])
    worker = serve({verbs.Stop: lambda *_: next(replies)})
    connect(worker, retry_s=60).stop("f1")
    assert worker.core.verbs() == [verbs.Stop] * 3


def ended(verb: object) -> Done:
    raise WorkerStoppedError("worker-2", "the worker has ended")


def test_another_worker_is_asked_where_one_has_ended(serve: Serve, connect: Callable[..., RestClient]) -> None:
    other = serve({verbs.Stop: Done(1, 204)})
    connect(serve({verbs.Stop: ended}), other).stop("f1")
    assert other.core.verbs() == [verbs.Stop]


def test_a_connector_that_a_worker_created_before_it_ended_is_no_error(
    serve: Serve, connect: Callable[..., RestClient]
) -> None:
    exists = {verbs.Create: Refused(1, 409, "f1 already exists"), verbs.ConnectorConfig: Done(1, 200, INFO["config"])}
    other = serve({**exists, verbs.ConnectorInfo: Done(1, 200, INFO)})
    gone = serve(dict.fromkeys((verbs.Create, verbs.ConnectorConfig, verbs.ConnectorInfo), ended))
    assert connect(gone, other).create("f1", {"k": "v"}) == INFO


def test_an_endless_rebalance_is_given_up_with_the_attempts_told(
    serve: Serve, connect: Callable[..., RestClient]
) -> None:
    worker = serve({verbs.Stop: Refused(1, 409, "a rebalance is expected")})
    with pytest.raises(RebalancePendingError, match=r"a rebalance is expected\. Asked 2 times within \d+\.\d s"):
        connect(worker, retry_s=0.12).stop("f1")


def test_a_client_for_text_forms_tries_nothing_again(serve: Serve, connect: Callable[..., RestClient]) -> None:
    worker = serve({verbs.ConnectorStatus: Refused(1, 409, "rebalance")})
    with pytest.raises(RebalancePendingError):
        connect(worker, retry_s=60).impatient().status("f1")
    assert len(worker.core.asked) == 1


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Refused(1, 404, "Connector f1 not found"), ConnectorNotFoundError),
        (Refused(1, 409, "Connector f1 already exists"), ConnectorExistsError),
        (Refused(1, 409, "no known leader"), RebalancePendingError),
        (Refused(1, 503, "starting"), WorkerNotReadyError),
        (Refused(1, 500, "Request timed out"), RestError),
        (Refused(1, 400, "not stopped"), RestError),
    ],
)
def test_a_refusal_is_a_typed_error_with_status_and_message(
    serve: Serve, connect: Callable[..., RestClient], reply: Refused, expected: type[RestError]
) -> None:
    with pytest.raises(RestError) as caught:
        connect(serve({verbs.Stop: reply})).stop("f1")
    assert type(caught.value) is expected
    assert (caught.value.status, caught.value.message) == (reply.status, reply.message)


def test_the_read_oddity_of_a_java_worker_counts_as_a_rebalance(
    serve: Serve, connect: Callable[..., RestClient]
) -> None:
    message = "Request cannot be completed because a rebalance is expected"
    worker = serve({verbs.ConnectorInfo: Refused(1, 500, message), verbs.Stop: Refused(1, 500, message)})
    with pytest.raises(RebalancePendingError):
        connect(worker).info("f1")
    with pytest.raises(RestError) as caught:
        connect(worker).stop("f1")
    assert not caught.value.retriable


def test_a_rejected_config_has_every_problem_and_not_the_config(
    serve: Serve, connect: Callable[..., RestClient]
) -> None:
    worker = serve()
    problems = ["Invalid value x for configuration a: no.", "Missing required configuration b."]
    worker.services.problems = [*problems, problems[1]]
    with pytest.raises(ConfigRejectedError) as caught:
        connect(worker).create("f1", {"db.password": "geheim"})
    assert list(caught.value.problems) == problems, "a problem of two keys is reported once"
    assert "geheim" not in repr(caught.value) + str(caught.value)


def created_before(_: Verb) -> Reply:
    return Refused(1, 409, "Connector f1 already exists")


def test_a_create_that_a_silent_worker_carried_out_is_a_success(
    serve: Serve, connect: Callable[..., RestClient], silent_url: str
) -> None:
    answers = {
        verbs.Create: created_before,
        verbs.ConnectorConfig: Done(1, 200, INFO["config"]),
        verbs.ConnectorInfo: Done(1, 200, INFO),
    }
    client = connect(silent_url, serve(answers))
    assert client.create("f1", {"k": "v"}) == INFO
    with pytest.raises(ConnectorExistsError):
        client.create("f1", {"k": "another"})


def test_without_a_silent_worker_an_existing_connector_is_an_error(
    serve: Serve, connect: Callable[..., RestClient]
) -> None:
    with pytest.raises(ConnectorExistsError):
        connect(serve({verbs.Create: created_before})).create("f1", {"k": "v"})


def test_a_delete_that_a_silent_worker_carried_out_is_a_success(
    serve: Serve, connect: Callable[..., RestClient], silent_url: str
) -> None:
    missing = Refused(1, 404, "Connector f1 not found")
    worker = serve({verbs.Delete: missing, verbs.ConnectorInfo: missing})
    connect(silent_url, worker).delete("f1")
    with pytest.raises(ConnectorNotFoundError):
        connect(worker).delete("f1")


def test_silence_says_that_the_request_may_have_been_carried_out(
    connect: Callable[..., RestClient], silent_url: str
) -> None:
    with pytest.raises(WorkersUnreachableError, match="may have been carried out"):
        connect(silent_url).stop("f1")


@pytest.fixture
def internal() -> Iterator[InternalClient]:
    client = InternalClient()
    yield client
    client.close()


def test_internal_calls_are_signed_over_their_exact_bytes(serve: Serve, internal: InternalClient) -> None:
    leader = serve({verbs.PutTaskConfigs: Done(1, 204), verbs.Fence: Done(1, 204)})
    internal.send_task_configs(leader.core.url, NAME, [{"a": "b"}], KEY)
    internal.fence(leader.core.url, NAME, KEY)
    of_configs, of_fence = (
        "Eroe1tB3QaSe5EJ0n/U/3E2UQZRh4D5G73yb9AU1xkM=",
        "04tCCW2A9F+Ca0Sp1WB95ySWpBXT9KGoyI47udqNwcs=",
    )
    assert leader.core.asked == [
        verbs.PutTaskConfigs(NAME, [{"a": "b"}], b'[{"a":"b"}]', of_configs, "HmacSHA256"),
        verbs.Fence(NAME, b"", of_fence, "HmacSHA256"),
    ]


def test_without_a_key_internal_calls_are_not_signed(serve: Serve, internal: InternalClient) -> None:
    leader = serve({verbs.Fence: Done(1, 204)})
    internal.fence(leader.core.url, "f1", None)
    assert leader.core.asked == [verbs.Fence("f1")]


@pytest.mark.parametrize(
    ("status", "message", "expected", "retriable"),
    [
        (403, "the signature is wrong", SignatureRefusedError, True),
        (409, "conflicting operation", RebalancePendingError, True),
        (503, "no session key yet", WorkerNotReadyError, True),
        (404, "Connector f1 not found", ConnectorNotFoundError, False),
        (500, "fencing failed", RestError, False),
        (500, "Request timed out. The worker is currently busy", WorkerNotReadyError, True),  # the round goes on
    ],
)
def test_internal_refusals_tell_whether_trying_again_may_help_and_are_tried_once(
    serve: Serve, internal: InternalClient, status: int, message: str, expected: type[RestError], retriable: bool
) -> None:
    leader = serve({verbs.Fence: Refused(1, status, message)})
    with pytest.raises(expected, match=message) as caught:
        internal.fence(leader.core.url, "f1", KEY)
    assert caught.value.retriable is retriable
    assert len(leader.core.asked) == 1
    assert base64.b64encode(KEY.key).decode() not in str(caught.value)


def test_a_leader_that_is_away_is_worth_another_try(internal: InternalClient, dead_url: str) -> None:
    with pytest.raises(WorkersUnreachableError) as caught:
        internal.fence(dead_url, "f1", KEY)
    assert caught.value.retriable


def test_a_leader_that_has_ended_is_worth_another_try(serve: Serve, internal: InternalClient) -> None:
    leader = serve({verbs.Fence: ended})
    with pytest.raises(WorkerNotReadyError, match="worker-2 cannot answer: the worker has ended") as caught:
        internal.fence(leader.core.url, "f1", KEY)
    assert caught.value.retriable


def test_close_ends_an_internal_call_that_waits(serve: Serve, internal: InternalClient) -> None:
    leader = serve({verbs.Fence: None})
    ended: list[BaseException] = []

    def fence() -> None:
        try:
            internal.fence(leader.core.url, "f1", KEY)
        except WorkersUnreachableError as error:
            ended.append(error)

    thread = threading.Thread(target=fence)
    thread.start()
    assert leader.core.reached.wait(timeout=10)
    internal.close()
    thread.join(timeout=10)
    assert len(ended) == 1
