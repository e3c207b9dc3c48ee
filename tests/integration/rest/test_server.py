"""What the REST server answers, over real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from connectx.core import verbs
from connectx.core.messages import Done, Forwarded, Refused
from connectx.core.replies import ConnectorInfo, ConnectorState, ConnectorStatus
from connectx.core.verbs import Verb
from connectx.errors.rest import ListenerError, ListenerTakenError
from connectx.model.states import ConnectorType, TargetState
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.rest.call import MAX_BODY_BYTES
from connectx.rest.server import RestServer
from connectx.rest.stages import Stage

Serve = Callable[..., Any]

INFO: ConnectorInfo = {"name": "f1", "config": {"name": "f1"}, "tasks": [], "type": "source"}
RUNNING: ConnectorState = {"state": "RUNNING", "worker_id": "127.0.0.1:1", "version": None}
STATUS: ConnectorStatus = {"name": "f1", "connector": RUNNING, "tasks": [], "type": "source"}


def error(status: int, message: str) -> dict[str, object]:
    return {"error_code": status, "message": message}


@pytest.mark.parametrize(
    ("method", "path", "verb", "args"),
    [
        ("GET", "/connectors/f1", verbs.ConnectorInfo, {}),
        ("GET", "/connectors/f1/", verbs.ConnectorInfo, {}),
        ("GET", "/connectors/f1/config", verbs.ConnectorConfig, {}),
        ("GET", "/connectors/f1/status", verbs.ConnectorStatus, {}),
        ("GET", "/connectors/f1/tasks", verbs.Tasks, {}),
        ("GET", "/connectors/f1/tasks/3/status", verbs.TaskStatus, {"task": 3}),
        ("GET", "/connectors/f1/topics", verbs.Topics, {}),
        ("GET", "/connectors?expand=status&expand=info", verbs.ListConnectors, {"expand": ("status", "info")}),
        ("PUT", "/connectors/f1/pause", verbs.Pause, {}),
        ("PUT", "/connectors/f1/resume", verbs.Resume, {}),
        ("PUT", "/connectors/f1/stop", verbs.Stop, {}),
        ("PUT", "/connectors/f1/topics/reset", verbs.ResetTopics, {}),
        ("DELETE", "/connectors/f1", verbs.Delete, {}),
        ("POST", "/connectors/f1/tasks/0/restart", verbs.RestartTask, {"task": 0}),
        ("POST", "/connectors/f1/restart", verbs.RestartConnector, {"include_tasks": False, "only_failed": False}),
        (
            "POST",
            "/connectors/f1/restart?includeTasks=true&onlyFailed=TRUE",
            verbs.RestartConnector,
            {"include_tasks": True, "only_failed": True},
        ),
    ],
)
def test_a_path_is_one_verb_of_the_core(serve: Serve, method: str, path: str, verb: Any, args: dict[str, Any]) -> None:
    worker = serve({verb: Done(1, 200, {"answer": "of the core"})})
    answer = httpx.request(method, worker.url + path)
    assert (answer.status_code, answer.json()) == (200, {"answer": "of the core"})
    assert worker.core.asked == [verb(**args) if verb is verbs.ListConnectors else verb("f1", **args)]


@pytest.mark.parametrize(
    ("verb", "method", "path", "status"),
    [
        (verbs.Delete, "DELETE", "/connectors/f1", 204),
        (verbs.Pause, "PUT", "/connectors/f1/pause", 202),
        (verbs.Stop, "PUT", "/connectors/f1/stop", 204),
    ],
)
def test_a_success_without_body_is_empty(serve: Serve, verb: type[Verb], method: str, path: str, status: int) -> None:
    worker = serve({verb: Done(1, status, None)})
    answer = httpx.request(method, worker.url + path)
    assert (answer.status_code, answer.content) == (status, b"")


def test_a_flagged_restart_answers_the_planned_states(serve: Serve) -> None:
    worker = serve({verbs.RestartConnector: Done(1, 202, STATUS)})
    answer = httpx.post(worker.url + "/connectors/f1/restart?includeTasks=true")
    assert (answer.status_code, answer.json()) == (202, STATUS)


@pytest.mark.parametrize("name", ["a/b", "with space", "ümlaut-名前", "per%cent", "a?b#c", "a+b", "dots.and-dashes"])
def test_names_are_percent_encoded_in_paths(serve: Serve, name: str) -> None:
    worker = serve({verbs.ConnectorInfo: Done(1, 200, INFO)})
    request = httpx.Request("GET", worker.url)
    request.url = httpx.URL(worker.url).copy_with(raw_path=f"/connectors/{quote(name, safe='')}".encode())
    with httpx.Client() as client:
        answer = client.send(request)
    assert answer.status_code == 200
    assert worker.core.asked == [verbs.ConnectorInfo(name)]


@pytest.mark.parametrize("status", [403, 404, 409, 500, 503])
def test_a_failure_is_error_code_and_message(serve: Serve, status: int) -> None:
    worker = serve({verbs.Stop: Refused(1, status, "why")})
    answer = httpx.put(worker.url + "/connectors/f1/stop")
    assert (answer.status_code, answer.json()) == (status, error(status, "why"))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("POST", "/connectors/f1/status", 405), ("GET", "/connectors/f1/tasks/x/status", 404)],
)
def test_unknown_paths_and_methods_have_the_same_error_body(serve: Serve, method: str, path: str, status: int) -> None:
    answer = httpx.request(method, serve().url + path)
    assert answer.status_code == status
    assert answer.json()["error_code"] == status


def test_create_validates_then_writes_and_names_the_location(serve: Serve) -> None:
    worker = serve({verbs.Create: Done(1, 201, INFO)})
    body = {"name": " a/b ", "config": {"connector.class": "X", "tasks.max": 2, "ratio": 1.50, "on": True, "off": None}}
    answer = httpx.post(worker.url + "/connectors", json=body)
    config = {"connector.class": "X", "tasks.max": "2", "ratio": "1.5", "on": "true", "off": None, "name": "a/b"}
    assert (answer.status_code, answer.json(), answer.headers["location"]) == (201, INFO, "/connectors/a%2Fb")
    assert worker.services.calls == [("validate", config)]
    assert worker.core.asked == [verbs.Create("a/b", config)]


@pytest.mark.parametrize(
    ("state", "target"),
    [("RUNNING", TargetState.STARTED), ("paused", TargetState.PAUSED), ("STOPPED", TargetState.STOPPED)],
)
def test_create_takes_an_initial_state(serve: Serve, state: str, target: TargetState) -> None:
    worker = serve({verbs.Create: Done(1, 201, INFO)})
    httpx.post(worker.url + "/connectors", json={"name": "f1", "config": {}, "initial_state": state})
    assert worker.core.asked[0].initial_state is target


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("POST", "/connectors", {"name": "f1", "config": {}}), ("PUT", "/connectors/f1/config", {})],
)
def test_an_invalid_config_is_refused_with_every_message_and_never_reaches_the_core(
    serve: Serve, method: str, path: str, body: dict[str, object]
) -> None:
    worker = serve()
    worker.services.problems = ["first problem", "second problem"]
    answer = httpx.request(method, worker.url + path, json=body)
    assert answer.status_code == 400
    assert answer.json()["message"].splitlines()[:3] == [
        "Connector configuration is invalid and contains the following 2 error(s):",
        "first problem",
        "second problem",
    ]
    assert worker.core.asked == []


def test_put_config_creates_or_updates(serve: Serve) -> None:
    worker = serve({verbs.PutConfig: Done(1, 201, INFO)})
    answer = httpx.put(worker.url + "/connectors/f1/config", json={"connector.class": "X"})
    assert (answer.status_code, answer.headers["location"]) == (201, "/connectors/f1")
    config = {"connector.class": "X", "name": "f1"}
    assert worker.core.asked == [verbs.PutConfig("f1", config)]


def test_patch_merges_at_the_leader_and_writes_only_over_what_it_read(serve: Serve) -> None:
    current = {"name": "f1", "a": "1", "b": "2", "empty": None}
    worker = serve({verbs.ConnectorConfig: Done(1, 200, current), verbs.PutConfig: Done(1, 200, INFO)})
    answer = httpx.patch(worker.url + "/connectors/f1/config", json={"a": None, "c": "3"})
    assert (answer.status_code, answer.json()) == (200, INFO)
    merged = {"name": "f1", "b": "2", "empty": None, "c": "3"}
    assert worker.core.asked == [
        verbs.ConnectorConfig("f1", leader=True),
        verbs.PutConfig("f1", merged, current),
    ]


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/connectors", b"{", "not JSON"),
        ("/connectors", b"\xff\xfe", "not JSON"),
        ("/connectors", b'{"name":' + b"[" * 100_000, "str | null"),
        ("/connectors", b'{"config": {"a": NaN}}', "not JSON"),
        ("/connectors", b"[]", "Expected `object`, got `array`"),
        ("/connectors", b'{"name": "x", "config": {}, "extra": 1}', "unknown field `extra`"),
        ("/connectors", b'{"name": "x", "config": {"a": {}}}', "value of a"),
        ("/connectors", b'{"name": "x", "config": {"name": "y"}}', "doesn't match"),
        ("/connectors", b'{"name": "x", "initial_state": "GONE"}', "$.initial_state"),
        ("/connectors/f1/tasks", b"{}", "Expected `array`"),
        ("/connectors/f1/tasks", b"[1]", "$[0]"),
    ],
)
def test_a_malformed_body_is_a_400_that_says_what_is_wrong(serve: Serve, path: str, body: bytes, problem: str) -> None:
    worker = serve()
    answer = httpx.post(worker.url + path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert problem in answer.json()["message"]
    assert worker.core.asked == []


def test_a_body_that_does_not_claim_to_be_json_is_refused(serve: Serve) -> None:
    answer = httpx.post(serve().url + "/connectors", content=b"{}", headers={"content-type": "text/plain"})
    assert (answer.status_code, answer.json()["error_code"]) == (415, 415)


def test_a_body_over_the_limit_is_refused(serve: Serve) -> None:
    body = b'{"a":"' + b"x" * MAX_BODY_BYTES + b'"}'
    answer = httpx.put(
        serve().url + "/connectors/f1/config", content=body, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["error_code"]) == (413, 413)


def test_the_leader_gets_the_request_as_it_came_and_its_answer_is_passed_on(serve: Serve) -> None:
    leader = serve({verbs.RestartConnector: Done(1, 202, STATUS)})
    follower = serve({verbs.RestartConnector: Forwarded(1, leader.core.url)})
    name = "a/ü b"
    answer = httpx.post(
        f"{follower.url}/connectors/{quote(name, safe='')}/restart?onlyFailed=true",
        headers={"authorization": "Basic abc"},
    )
    assert (answer.status_code, answer.json()) == (202, STATUS)
    assert leader.core.asked == [verbs.RestartConnector(name, only_failed=True)]


def test_a_follower_leaves_validation_to_the_leader(serve: Serve) -> None:
    leader = serve({verbs.Create: Done(1, 201, INFO)})
    follower = serve()
    follower.core.leader_url = leader.core.url
    answer = httpx.post(follower.url + "/connectors", json={"name": "f1", "config": {"k": "v"}})
    assert (answer.status_code, answer.json(), answer.headers["location"]) == (201, INFO, "/connectors/f1")
    assert (follower.core.asked, follower.services.calls) == ([], [])
    assert leader.core.asked == [verbs.Create("f1", {"k": "v", "name": "f1"})]


def test_an_error_of_the_leader_is_passed_on(serve: Serve) -> None:
    leader = serve({verbs.Stop: Refused(1, 404, "Connector f1 not found")})
    follower = serve({verbs.Stop: Forwarded(1, leader.core.url)})
    answer = httpx.put(follower.url + "/connectors/f1/stop")
    assert (answer.status_code, answer.json()) == (404, error(404, "Connector f1 not found"))


def test_a_request_takes_two_hops_at_most(serve: Serve) -> None:
    owner = serve({verbs.RestartTask: Done(1, 204)})
    leader = serve({verbs.RestartTask: Forwarded(1, owner.core.url)})
    follower = serve({verbs.RestartTask: Forwarded(1, leader.core.url)})
    path = "/connectors/f1/tasks/0/restart"
    assert httpx.post(follower.url + path).status_code == 204
    third = serve({verbs.RestartTask: Forwarded(1, follower.core.url)})
    answer = httpx.post(third.url + path)
    assert (answer.status_code, answer.json()["error_code"]) == (409, 409)
    assert [len(worker.core.asked) for worker in (third, follower, leader, owner)] == [1, 2, 2, 1]


@pytest.mark.parametrize(("forward", "status"), [("", 204), ("?forward=true", 204), ("?forward=false", 409)])
def test_the_forward_flag_says_how_many_hops_are_left(serve: Serve, forward: str, status: int) -> None:
    leader = serve({verbs.Stop: Done(1, 204)})
    follower = serve({verbs.Stop: Forwarded(1, leader.core.url)})
    assert httpx.put(follower.url + "/connectors/f1/stop" + forward).status_code == status


def test_two_workers_that_name_each_other_end_in_a_conflict(serve: Serve) -> None:
    one, two = serve(), serve()
    one.core.answers[verbs.Stop] = Forwarded(1, two.core.url)
    two.core.answers[verbs.Stop] = Forwarded(1, one.core.url)
    assert httpx.put(one.url + "/connectors/f1/stop").status_code == 409


def test_a_leader_that_cannot_be_reached_is_a_409_that_names_it_since_nothing_was_done(serve: Serve) -> None:
    gone = serve()
    gone.server.stop()
    follower = serve({verbs.Stop: Forwarded(1, gone.core.url)})
    answer = httpx.put(follower.url + "/connectors/f1/stop")
    assert answer.status_code == 409
    assert gone.core.url in answer.json()["message"]


def test_internal_requests_reach_the_core_with_the_exact_bytes_and_both_headers(serve: Serve) -> None:
    worker = serve({verbs.PutTaskConfigs: Done(1, 204), verbs.Fence: Done(1, 204)})
    headers = {
        "content-type": "application/json",
        "X-Connect-Authorization": "c2lnbmF0dXJl",
        "X-Connect-Request-Signature-Algorithm": "HmacSHA256",
    }
    body = b'[ {"a":"b"} ]'
    assert httpx.post(worker.url + "/connectors/f1/tasks", content=body, headers=headers).status_code == 204
    assert httpx.put(worker.url + "/connectors/f1/fence", headers=headers).status_code == 204
    signed = "c2lnbmF0dXJl", "HmacSHA256"
    assert worker.core.asked == [
        verbs.PutTaskConfigs("f1", [{"a": "b"}], body, *signed),
        verbs.Fence("f1", b"", *signed),
    ]


def test_an_internal_request_keeps_its_signature_when_it_is_forwarded(serve: Serve) -> None:
    leader = serve({verbs.PutTaskConfigs: Done(1, 204)})
    follower = serve({verbs.PutTaskConfigs: Forwarded(1, leader.core.url)})
    headers = {"content-type": "application/json", "X-Connect-Authorization": "c2ln"}
    body = b'[{"a":"\xc3\xbc"}]'
    assert httpx.post(follower.url + "/connectors/f1/tasks", content=body, headers=headers).status_code == 204
    assert leader.core.asked == [verbs.PutTaskConfigs("f1", [{"a": "ü"}], body, "c2ln", None)]


PERMITTED = Done(1, 200, {"type": "source", "config": {"file": "a"}})


def test_offsets_are_read_by_the_services_after_the_core_knew_the_connector(serve: Serve) -> None:
    worker = serve({verbs.Offsets: PERMITTED})
    answer = httpx.get(worker.url + "/connectors/f1/offsets")
    assert answer.json() == {"offsets": [{"partition": {"filename": "a"}, "offset": {"position": 7}}]}
    assert worker.services.calls == [("read", "f1", ConnectorType.SOURCE, {"file": "a"})]


def test_offsets_are_written_only_with_the_permission_of_the_core(serve: Serve) -> None:
    worker = serve({verbs.ModifyOffsets: PERMITTED})
    entries = [{"partition": {"p": 1}, "offset": {"o": 12345678901234567890}}, {"partition": {"p": 2}, "offset": None}]
    answer = httpx.patch(worker.url + "/connectors/f1/offsets", json={"offsets": entries})
    assert answer.json() == {"message": "The offsets for this connector have been altered successfully"}
    answer = httpx.delete(worker.url + "/connectors/f1/offsets")
    assert answer.json() == {"message": "The offsets for this connector have been reset successfully"}
    assert worker.services.calls == [
        ("alter", "f1", ConnectorType.SOURCE, [({"p": 1}, {"o": 12345678901234567890}), ({"p": 2}, None)]),
        ("reset", "f1", ConnectorType.SOURCE),
    ]
    assert worker.core.verbs() == [verbs.ModifyOffsets, verbs.ModifyOffsets]
    worker.core.answers[verbs.ModifyOffsets] = Refused(1, 400, "not stopped")
    answer = httpx.patch(worker.url + "/connectors/f1/offsets", json={"offsets": entries})
    assert (answer.status_code, answer.json()) == (400, error(400, "not stopped"))
    assert len(worker.services.calls) == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"offsets": []},
        {"offsets": {}},
        {"offsets": [{"partition": 3}]},
        {"offsets": [{"partition": {}, "offset": 3}]},
        {"offsets": [], "more": 1},
    ],
)
def test_malformed_offsets_are_refused_before_the_core_is_asked(serve: Serve, body: dict[str, object]) -> None:
    worker = serve()
    answer = httpx.patch(worker.url + "/connectors/f1/offsets", json=body)
    assert answer.status_code == 400
    assert worker.core.asked == []


def test_plugins_and_their_validation(serve: Serve) -> None:
    worker = serve()
    assert [p["type"] for p in httpx.get(worker.url + "/connector-plugins").json()] == ["source"]
    everything = httpx.get(worker.url + "/connector-plugins?connectorsOnly=false").json()
    assert [p["type"] for p in everything] == ["source", "converter"]
    assert httpx.get(worker.url + "/connector-plugins/FileStreamSource/config").json()[0]["name"] == "file"
    missing = httpx.get(worker.url + "/connector-plugins/None/config")
    assert (missing.status_code, missing.json()) == (404, error(404, "Unknown plugin None"))
    worker.services.problems = ["wrong"]
    path = worker.url + "/connector-plugins/FileStreamSource/config/validate"
    answer = httpx.put(path, json={"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector"})
    assert (answer.status_code, answer.json()["error_count"]) == (200, 1)
    assert httpx.put(path, json={"connector.class": "FileStreamSink"}).status_code == 400


def test_validations_that_wait_hold_nobody_else_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, go_on = serve(), threading.Event()
    begun, validate = threading.Semaphore(0), worker.services.validate

    def waiting(config: Mapping[str, str | None]) -> Mapping[str, Any]:
        begun.release()
        assert go_on.wait(30)
        answer: Mapping[str, Any] = validate(config)
        return answer

    monkeypatch.setattr(worker.services, "validate", waiting)
    path, config = (
        worker.url + "/connector-plugins/FileStreamSource/config/validate",
        {"connector.class": "FileStreamSource"},
    )
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(httpx.put, path, json=config, timeout=30) for _ in range(8)]
        try:
            assert all(begun.acquire(timeout=10) for _ in asked)
            assert httpx.get(worker.url + "/").status_code == 200
        finally:
            go_on.set()
        assert {answer.result().status_code for answer in asked} == {200}


def test_every_method_of_a_path_is_told_by_options_and_by_a_refusal(serve: Serve) -> None:
    url = serve().url + "/connectors"
    for answer, status in ((httpx.options(url), 200), (httpx.delete(url), 405)):
        assert (answer.status_code, {*answer.headers["allow"].split(", ")}) == (
            status,
            {"GET", "HEAD", "OPTIONS", "POST"},
        )
    head = httpx.head(url)
    assert (head.status_code, head.text, head.headers["content-length"]) == (200, "", "2")


def test_the_root_tells_the_versions(serve: Serve) -> None:
    answer = httpx.get(serve().url)
    assert answer.json() == {"version": "0.1.0", "commit": "unknown", "kafka_cluster_id": "abc"}


STAGE = "The worker is currently ensuring membership in the cluster, which began at 2023-11-14T22:13:20.042Z."


def test_health_tells_starting_healthy_and_unhealthy_apart(serve: Serve) -> None:
    worker = serve(health_timeout_ms=50)
    assert httpx.get(worker.url + "/health").json()["status"] == "healthy"
    worker.services.is_ready = False
    starting = httpx.get(worker.url + "/health")
    assert (starting.status_code, starting.json()) == (
        503,
        {"status": "starting", "message": f"Worker is still starting up. {STAGE}"},
    )
    worker.services.is_ready = True
    message = "Worker was unable to handle this request and may be unable to handle other requests."
    unhealthy = {"status": "unhealthy", "message": f"{message} {STAGE}"}
    worker.services.is_in_touch = False
    lonely = httpx.get(worker.url + "/health")
    assert (lonely.status_code, lonely.json()) == (500, unhealthy)
    worker.services.is_in_touch = True
    worker.core.answers[verbs.Worker] = None
    silent = httpx.get(worker.url + "/health")
    assert (silent.status_code, silent.json()) == (500, unhealthy)


def test_a_request_that_takes_too_long_names_the_stage_of_the_worker(serve: Serve) -> None:
    worker = serve({verbs.Stop: None}, request_timeout_ms=50)
    answer = httpx.put(worker.url + "/connectors/f1/stop")
    assert (answer.status_code, answer.json()) == (500, error(500, f"Request timed out. {STAGE}"))


def test_a_request_that_takes_too_long_names_what_it_waits_for(serve: Serve) -> None:
    worker = serve({verbs.Stop: None}, request_timeout_ms=50)
    worker.core.stage = Stage("starting the connector", 1_700_000_000_000)
    answer = httpx.put(worker.url + "/connectors/f1/stop")
    assert answer.json()["message"] == f"Request timed out. {worker.core.stage.summary()}"


@pytest.mark.parametrize(
    "headers",
    [{"host": "attacker.example"}, {"origin": "https://attacker.example"}, {"origin": "null"}],
)
def test_requests_that_another_site_makes_a_browser_send_are_refused(serve: Serve, headers: dict[str, str]) -> None:
    worker = serve({verbs.RestartConnector: Done(1, 204)})
    answer = httpx.post(worker.url + "/connectors/f1/restart", headers=headers)
    assert (answer.status_code, worker.core.asked) == (403, [])
    own = httpx.post(worker.url + "/connectors/f1/restart", headers={"origin": worker.url})
    assert own.status_code == 204


def test_the_server_listens_on_loopback_and_a_port_taken_names_the_setting(serve: Serve) -> None:
    url = urlsplit(serve().url)
    assert url.hostname == "127.0.0.1"
    taken = {**embedded_config({"listeners": f"http://127.0.0.1:{url.port}"}), "bootstrap.servers": "127.0.0.1:9"}
    worker = serve()
    server = RestServer(worker.core.ask, worker.services, WorkerConfig.parse(taken))
    with pytest.raises(ListenerTakenError, match="listeners"):
        server.start()


@pytest.mark.parametrize("listener", ["http://192.0.2.1:0", "http://no such host:0"])
def test_a_listener_that_cannot_be_is_refused(serve: Serve, listener: str) -> None:
    config = WorkerConfig.parse({**embedded_config({"listeners": listener}), "bootstrap.servers": "127.0.0.1:9"})
    worker = serve()
    with pytest.raises(ListenerError, match="listeners"):
        RestServer(worker.core.ask, worker.services, config).start()


def test_the_advertised_address_can_be_set(serve: Serve) -> None:
    advertised = {"rest.advertised.host.name": "connect.example", "rest.advertised.port": "8083"}
    config = WorkerConfig.parse({**embedded_config(advertised), "bootstrap.servers": "127.0.0.1:9"})
    worker = serve()
    server = RestServer(worker.core.ask, worker.services, config)
    try:
        assert server.start() == server.url == "http://connect.example:8083/"
    finally:
        server.stop()


def test_abandon_drops_connections_in_the_middle_of_a_request(serve: Serve) -> None:
    worker = serve({verbs.Stop: None})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.put, worker.url + "/connectors/f1/stop")
        assert worker.core.reached.wait(timeout=10)
        worker.server.abandon()
        with pytest.raises(httpx.TransportError):
            waiting.result(timeout=10)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", urlsplit(worker.url).port), timeout=5)


def test_nothing_is_left_running_after_stop(serve: Serve) -> None:
    worker = serve()
    httpx.get(worker.url)
    assert worker.server.stop()
    assert [t.name for t in threading.enumerate() if t.name.startswith("worker-rest")] == []
    assert worker.server.stop()
