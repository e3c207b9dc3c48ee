"""HttpSink against a real HTTP server: bodies, URLs, retries, refused records and secrets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.http.errors import HttpError, HttpUnavailableError
from connectx.connectors.http.sink import HttpSink
from connectx.errors.plugins import ConfigError, RecordRejectedError
from connectx.model.ids import TaskId, TopicPartition
from connectx.model.places import Place
from connectx.plugins.registry import Plugins
from connectx.plugins.slices import SinkBatch
from connectx.plugins.tasks import SinkTask
from tests.support.http_server import Answer, Received, Service, http_service
from tests.support.profiles import dotted

ITEM = pa.struct([("id", pa.int64()), ("name", pa.string())])


class Context:
    """What the runtime offers, noted."""

    task = TaskId("http", 0)
    group_id = "connect-http"
    assignment = (TopicPartition("orders", 0),)

    def __init__(self, *, tolerates: bool) -> None:
        self._tolerates = tolerates
        self.reported: list[tuple[int, str]] = []
        self.pauses_ms: list[int] = []

    def timeout(self, timeout_ms: int) -> None:
        self.pauses_ms.append(timeout_ms)

    def spark(self) -> Any:
        raise AssertionError("this sink needs no Spark")

    def report(self, partition: TopicPartition, offset: int, error: Exception) -> None:
        self.reported.append((offset, str(error)))
        if not self._tolerates:
            raise error


class Sink:
    """A started task and its context."""

    def __init__(self, url: str, **settings: str) -> None:
        config = {"http.api.url": url, "retry.backoff.ms": "100", **dotted(settings)}
        self.context = Context(tolerates=config.get("errors.tolerance") == "all")
        self.task: SinkTask = HttpSink.Task()
        self.task.start(config, self.context)

    def put(
        self, values: Sequence[Any], kind: pa.DataType | None = None, keys: Sequence[Any] = (), start: int = 0
    ) -> None:
        self.task.put(batch(values, kind or pa.string(), keys, start))


def batch(values: Sequence[Any], kind: pa.DataType, keys: Sequence[Any] = (), start: int = 0) -> SinkBatch:
    count = len(values)
    rows = pa.table(
        {
            "topic": ["orders"] * count,
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(start, start + count), pa.int64()),
            "timestamp": pa.nulls(count, pa.int64()),
            "key": pa.array(keys or [None] * count, pa.string()),
            "value": pa.array(values, kind),
        }
    )
    return SinkBatch(rows, {TopicPartition("orders", 0): (start, start + count)})


@pytest.fixture
def service() -> Iterator[Service]:
    with http_service() as made:
        yield made


@pytest.fixture
def sinks(service: Service) -> Iterator[Any]:
    """`sinks(path, **settings)` starts a task; all are stopped at the end."""
    made: list[Sink] = []

    def start(path: str = "/in", **settings: str) -> Sink:
        made.append(Sink(service.url + path, **settings))
        return made[-1]

    yield start
    for sink in made:
        sink.task.stop()


def bodies(requests: Sequence[Received]) -> list[str]:
    return [request.body for request in requests]


def statuses(service: Service, *codes: int, **headers: str) -> None:
    """Answer with these status codes first, then with 200."""
    left = list(codes)
    service.answer = lambda request: Answer(left.pop(0) if left else 200, "wait", headers)


def refusing(service: Service, *bad: str, status: int = 400) -> None:
    """Refuse every body that holds one of these texts."""

    def answer(request: Received) -> Answer:
        return Answer(status, "no such item") if any(text in request.body for text in bad) else Answer()

    service.answer = answer


def test_each_record_is_one_request_named_by_its_place_in_kafka(service: Service, sinks: Any) -> None:
    sinks().put(["one", "two"], start=7)
    assert [(request.method, request.path, request.body) for request in service.received] == [
        ("POST", "/in", "one"),
        ("POST", "/in", "two"),
    ]
    assert [request.headers["Idempotency-Key"] for request in service.received] == ["orders-0-7", "orders-0-8"]
    assert service.received[0].headers["Content-Type"] == "text/plain; charset=utf-8"


def test_batches_are_json_arrays_or_lines(service: Service, sinks: Any) -> None:
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": 'c"\n'}]
    sinks(batch_max_size="2", batch_json_as_array="true").put(rows, ITEM)
    assert [json.loads(body) for body in bodies(service.received)] == [rows[:2], rows[2:]]
    assert service.received[0].headers["Content-Type"] == "application/json"
    assert service.received[0].headers["Idempotency-Key"] == "orders-0-0-1"
    service.received.clear()
    sinks(batch_max_size="10", batch_separator="\\n", batch_suffix="\\n").put(["a", "b"])
    sinks(batch_max_size="10", batch_separator="\\n", request_body_format="json").put(["a", "b"])
    assert bodies(service.received) == ["a\nb\n", '"a"\n"b"']


def test_variables_of_the_url_come_from_the_record_and_are_escaped(service: Service, sinks: Any) -> None:
    sink = sinks("/${topic}/${key}/${id}?at=${partition}-${offset}", request_method="put", batch_max_size="5")
    sink.put([{"id": 1, "name": "a"}, {"id": 1, "name": "b"}], ITEM, keys=["x/y ü", "z"])
    assert [(request.method, request.path) for request in service.received] == [
        ("PUT", "/orders/x%2Fy%20%C3%BC/1?at=0-0"),
        ("PUT", "/orders/z/1?at=0-1"),
    ]


def test_records_with_the_same_url_share_a_request_and_keep_their_order_around_a_delete(
    service: Service, sinks: Any
) -> None:
    sink = sinks("/${key}", batch_max_size="5", behavior_on_null_values="delete")
    sink.put(["1", "2", None, "3"], keys=["a", "b", "a", "a"])
    sink.put(["4", "5", "6"], keys=["a", "b", "a"], start=4)
    assert [(request.method, request.path, request.body) for request in service.received] == [
        ("POST", "/a", "1"),
        ("POST", "/b", "2"),
        ("DELETE", "/a", ""),
        ("POST", "/a", "3"),
        ("POST", "/a", "4,6"),
        ("POST", "/b", "5"),
    ]


def test_a_delete_of_what_is_gone_is_done(service: Service, sinks: Any) -> None:
    statuses(service, 404)
    sinks("/${key}", behavior_on_null_values="delete").put([None], keys=["a"])
    assert len(service.received) == 1


@pytest.mark.parametrize(("behavior", "reported"), [("ignore", []), ("log", []), ("fail", [1])])
def test_tombstones_are_left_out_or_refused(service: Service, sinks: Any, behavior: str, reported: list[int]) -> None:
    sink = sinks(behavior_on_null_values=behavior, errors_tolerance="all")
    sink.put(["a", None, "b"])
    assert bodies(service.received) == ["a", "b"]
    assert [offset for offset, _ in sink.context.reported] == reported


def test_a_put_that_fails_in_the_middle_goes_on_where_it_stopped(service: Service, sinks: Any) -> None:
    statuses(service, 200, 503, 503)
    sink = sinks()
    for _ in range(2):
        with pytest.raises(
            HttpUnavailableError, match=r"/in answered 503 Service Unavailable: wait\. Check .*tries again"
        ):
            sink.put(["a", "b", "c"])
    sink.put(["a", "b", "c"])
    assert bodies(service.accepted) == ["a", "b", "c"]
    assert bodies(service.received) == ["a", "b", "b", "b", "c"]
    assert sink.context.pauses_ms == [100, 200]
    sink.put(["d"], start=3)
    assert bodies(service.accepted) == ["a", "b", "c", "d"]


def test_the_same_offsets_read_again_are_sent_again(service: Service, sinks: Any) -> None:
    sink = sinks()
    sink.put(["a"])
    sink.put(["a"])
    assert bodies(service.accepted) == ["a", "a"]


@pytest.mark.parametrize(
    ("header", "pause_ms"),
    [("7", 7_000), ("0", 100), ("soon", 100), ("Wed, 21 Oct 2015 07:28:00 GMT", 100), ("99999999", 3_600_000)],
)
def test_a_pause_is_as_long_as_the_target_says_but_not_shorter_than_the_back_off(
    service: Service, sinks: Any, header: str, pause_ms: int
) -> None:
    statuses(service, 429, **{"Retry-After": header})
    sink = sinks()
    with pytest.raises(HttpUnavailableError, match="429"):
        sink.put(["a"])
    assert sink.context.pauses_ms == [pause_ms]


def test_pauses_grow_up_to_their_limit_and_tries_end(service: Service, sinks: Any) -> None:
    statuses(service, *[500] * 4)
    sink = sinks(max_retries="3", errors_retry_delay_max_ms="250")
    for _ in range(3):
        with pytest.raises(HttpUnavailableError):
            sink.put(["a"])
    with pytest.raises(HttpError, match=r"tried 4 times \(max.retries=3\).*raise max.retries"):
        sink.put(["a"])
    assert sink.context.pauses_ms == [100, 200, 250]


def test_a_target_that_cannot_be_reached_is_tried_again() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        sink = Sink(f"http://127.0.0.1:{unused.getsockname()[1]}/in?key=secret")
        with pytest.raises(HttpUnavailableError, match="/in cannot be reached") as failed:
            sink.put(["a"])
    sink.task.stop()
    assert "secret" not in str(failed.value)


def test_a_refused_record_is_found_by_halves_and_the_others_arrive_once(service: Service, sinks: Any) -> None:
    refusing(service, "x")
    sink = sinks(batch_max_size="8", errors_tolerance="all")
    sink.put(["a", "b", "c", "x1", "d", "e", "x2", "f"])
    assert sorted(",".join(bodies(service.accepted)).split(",")) == ["a", "b", "c", "d", "e", "f"]
    assert [offset for offset, _ in sink.context.reported] == [3, 6]
    assert (
        "/in refuses the record at offset 3 of orders-0: it answered 400 Bad Request: no such item."
        in (sink.context.reported[0][1])
    )


def test_halves_that_arrived_are_not_sent_again_when_the_target_fails_between(service: Service, sinks: Any) -> None:
    calls = iter([400, 200, 503, 200])
    service.answer = lambda request: Answer(next(calls))
    sink = sinks(batch_max_size="4", errors_tolerance="all")
    with pytest.raises(HttpUnavailableError):
        sink.put(["a", "b", "c", "d"])
    sink.put(["a", "b", "c", "d"])
    assert bodies(service.accepted) == ["a,b", "c,d"]
    assert sink.context.reported == []


def test_without_tolerance_the_first_refused_record_ends_the_put(service: Service, sinks: Any) -> None:
    refusing(service, "x")
    with pytest.raises(RecordRejectedError, match="offset 1 of orders-0"):
        sinks().put(["a", "x", "b"])
    assert bodies(service.received) == ["a", "x"]


def test_a_record_without_what_the_url_needs_is_refused(service: Service, sinks: Any) -> None:
    sink = sinks("/${key}/${nothing}", errors_tolerance="all")
    sink.put([{"id": 1, "name": "a"}] * 2, ITEM, keys=["a", None])
    assert service.received == []
    assert ["it has no nothing for ${nothing}" in text for _, text in sink.context.reported] == [True, False]


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405])
def test_an_answer_that_is_about_no_record_fails_the_task(service: Service, sinks: Any, status: int) -> None:
    statuses(service, status)
    with pytest.raises(HttpError, match=rf"/in answered {status} .*Correct http.api.url, the login"):
        sinks(errors_tolerance="all").put(["a"])


def test_logins_and_headers_are_sent_and_never_shown(service: Service, sinks: Any) -> None:
    sinks(auth_type="basic", connection_user="user", connection_password="s3cret").put(["a"])
    assert service.received[-1].headers["Authorization"] == "Basic dXNlcjpzM2NyZXQ="
    own = {"headers": "X-Api-Key: k3y |Content-Type:text/csv", "auth_type": "bearer", "bearer_token": "t0ken"}
    sink = sinks(**own)
    service.answer = lambda request: Answer(403, f"{request.headers['Authorization']} {request.headers['X-Api-Key']}")
    with pytest.raises(HttpError, match=r"\[hidden\]") as failed:
        sink.put(["a"])
    sent = service.received[-1].headers
    assert (sent["Authorization"], sent["X-Api-Key"], sent["Content-Type"]) == ("Bearer t0ken", "k3y", "text/csv")
    shown = (
        str(failed.value) + repr(sink.task) + repr(HttpSink.config.parse(dotted(own) | {"http.api.url": "http://h"}))
    )
    assert [secret for secret in ("k3y", "t0ken", "s3cret") if secret in shown] == []


def test_a_cancelled_put_sends_nothing_more(service: Service, sinks: Any) -> None:
    sink = sinks()

    def cancel(request: Received) -> Answer:
        sink.task.cancel()
        return Answer()

    service.answer = cancel
    with pytest.raises(HttpUnavailableError, match="cancelled"):
        sink.put(["a", "b"])
    assert bodies(service.received) == ["a"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"http.api.url": "ftp://host/"}, "not an http:// or https:// URL"),
        ({"http.api.url": "http://me:pw@host/"}, "connection.user and connection.password"),
        ({"http.api.url": "http://${key}/"}, "host cannot be a variable"),
        ({"headers": "no colon s3cret"}, r"Invalid value \[hidden\] for configuration headers: header 1 of 1"),
        ({"headers": "a:b|c:\x00d"}, "value of header c is not printable"),
        ({"auth.type": "basic", "connection.user": "me"}, "auth.type=basic needs connection.password"),
        ({"auth.type": "bearer"}, "auth.type=bearer needs bearer.token"),
        ({"retry.on.status.codes": "5xx"}, "5xx is not a status code"),
        ({"retry.on.status.codes": "400-"}, "400 is in retry.on.status.codes, too"),
        ({"behavior.on.null.values": "delete"}, r"needs \$\{key\} in http.api.url"),
        ({"https.ssl.truststore.location": "/nowhere.pem"}, "cannot be used as PEM certificates: No such file"),
        ({"batch.max.size": "0"}, "at least 1"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: Mapping[str, str], problem: str) -> None:
    config = {"http.api.url": "http://host/", **settings}
    with pytest.raises(ConfigError, match=problem) as refused:
        HttpSink.Task().start(config, Context(tolerates=False))
    assert "s3cret" not in str(refused.value)


def test_it_is_found_by_its_names_and_its_place_is_known() -> None:
    plugins = Plugins()
    for name in ("HttpSink", "io.confluent.connect.http.HttpSinkConnector"):
        assert plugins.connector_class(name) is HttpSink
    config = {"http.api.url": "https://host/${topic}/${key}?token=t0ken"}
    assert HttpSink.places(config, ["orders"]) == [Place("web service https://host/orders/${key}")]
