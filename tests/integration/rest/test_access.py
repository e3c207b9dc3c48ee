"""Who may ask a worker, through which sockets, and how much: logins, TLS, limits, admin listeners."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import trustme

from connectx.core import verbs
from connectx.core.messages import Done, Forwarded, Refused
from connectx.errors.rest import RestAuthError, RestError, RestTlsError
from connectx.model.config_records import SessionKeyRecord
from connectx.model.worker_config import WorkerConfig
from connectx.rest.client import InternalClient, RestClient
from connectx.rest.exchange import http_client

Serve = Callable[..., Any]

SECRET = "correct horse"
TOKEN = "t0k3n-of-the-dashboard"
WORKER = {"url": "http://me/", "leader_url": "http://me/"}


@pytest.fixture
def logins(tmp_path: Path) -> dict[str, str]:
    """Settings with a file of each kind."""
    (tmp_path / "basic").write_text(f"# who may ask\nana:{SECRET}\n\nbob:p:w\n")
    (tmp_path / "bearer").write_text(TOKEN + "\n")
    return {"rest.auth.basic.file": str(tmp_path / "basic"), "rest.auth.bearer.file": str(tmp_path / "bearer")}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    "login",
    [
        {"auth": ("ana", SECRET)},
        {"auth": ("bob", "p:w")},
        {"headers": bearer(TOKEN)},
        {"headers": {"authorization": f"bearer {TOKEN}"}},
    ],
)
def test_a_login_of_the_files_lets_a_request_in(serve: Serve, logins: dict[str, str], login: dict[str, Any]) -> None:
    assert httpx.get(serve(settings=logins).url + "/connectors", **login).status_code == 200


@pytest.mark.parametrize(
    "login",
    [
        {},
        {"auth": ("ana", "wrong")},
        {"auth": ("ana", "")},
        {"auth": ("bob", SECRET)},
        {"headers": {"authorization": "Bearer"}},
        {"headers": bearer(TOKEN[:-1])},
        {"headers": {"authorization": TOKEN}},
        {"headers": {"authorization": f"Basic {TOKEN}"}},
        {"headers": {"authorization": "Basic %%%"}},
        {"headers": {"authorization": b"Bearer \xff\xfe"}},
    ],
)
def test_any_other_is_a_401_that_the_core_never_sees(
    serve: Serve, logins: dict[str, str], login: dict[str, Any]
) -> None:
    worker = serve(settings=logins)
    answer = httpx.delete(worker.url + "/connectors/f1", **login)
    assert (answer.status_code, answer.json()["error_code"]) == (401, 401)
    assert answer.headers["www-authenticate"] == 'Basic realm="Kafka Connect", Bearer realm="Kafka Connect"'
    assert worker.core.asked == []


def test_only_health_is_public(serve: Serve, logins: dict[str, str]) -> None:
    worker = serve(settings=logins)
    paths = ("/health", "/", "/metrics", "/admin/loggers", "/openapi.json", "/nothing")
    assert [httpx.get(worker.url + path).status_code for path in paths] == [200, 401, 401, 401, 401, 401]


def test_a_file_that_changes_is_read_again_and_one_without_logins_revokes_them(
    serve: Serve, logins: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    worker, file = serve(settings=logins), Path(logins["rest.auth.bearer.file"])

    def statuses(*tokens: str) -> list[int]:
        return [httpx.get(worker.url + "/connectors", headers=bearer(token)).status_code for token in tokens]

    file.write_text("another-token\n")
    os.utime(file, ns=(1, 1))
    assert statuses(TOKEN, "another-token") == [401, 200]
    with caplog.at_level(logging.ERROR):
        for empty in ("", "# none any more\n"):
            file.write_text(empty)
            assert statuses("another-token") == [401]
            file.write_text("another-token\n")
            assert statuses("another-token") == [200]
        file.unlink()
        assert statuses("another-token") == [401]
    assert caplog.text.count("are revoked") == 3
    assert httpx.get(worker.url + "/connectors", auth=("ana", SECRET)).status_code == 200


def test_a_line_that_is_no_login_leaves_the_old_ones_in_force(
    serve: Serve, logins: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    worker, file = serve(settings=logins), Path(logins["rest.auth.basic.file"])
    file.write_text("ana\n")
    with caplog.at_level(logging.ERROR):
        assert httpx.get(worker.url + "/connectors", auth=("ana", SECRET)).status_code == 200
    assert "rest.auth.basic.file" in caplog.text


@pytest.mark.parametrize(
    ("setting", "content", "problem"),
    [
        ("rest.auth.basic.file", f"ana {SECRET}", "no user:password in line 1"),
        ("rest.auth.basic.file", f"# x\n:{SECRET}", "no user:password in line 2"),
        ("rest.auth.basic.file", "", "has no login"),
        ("rest.auth.bearer.file", "# none", "has no login"),
        ("rest.auth.bearer.file", None, "cannot be read"),
    ],
)
def test_a_file_without_logins_stops_the_worker_and_none_of_it_is_shown(
    serve: Serve, tmp_path: Path, setting: str, content: str | None, problem: str
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_text(content)
    with pytest.raises(RestAuthError, match=problem) as raised:
        serve(settings={setting: str(file)})
    assert SECRET not in str(raised.value)
    assert setting in str(raised.value)


def test_no_login_stands_in_an_answer_or_in_the_log(
    serve: Serve, logins: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        worker = serve({verbs.Delete: Refused(1, 500, "it broke")}, logins)
        answers = [
            httpx.delete(worker.url + "/connectors/f1", auth=("ana", secret)).text
            for secret in (SECRET, "wr0ng-secret")
        ]
    seen = "".join(answers) + caplog.text
    assert not [secret for secret in (SECRET, "wr0ng-secret", TOKEN) if secret in seen]


SIGNED = {"X-Connect-Authorization": "c2ln", "X-Connect-Request-Signature-Algorithm": "HmacSHA256"}


@pytest.mark.parametrize(("protocol", "status"), [("sessioned", 204), ("compatible", 401), (None, 401)])
def test_a_signature_stands_for_a_login_where_the_core_verifies_it(
    serve: Serve, logins: dict[str, str], protocol: str | None, status: int
) -> None:
    worker = serve({verbs.Fence: Done(1, 204), verbs.Worker: Done(1, 200, {**WORKER, "protocol": protocol})}, logins)
    assert httpx.put(worker.url + "/connectors/f1/fence", headers=SIGNED).status_code == status
    assert (verbs.Fence in worker.core.verbs()) is (status == 204)


def test_a_signature_that_stands_for_nothing_is_refused_before_a_body_is_waited_for(
    serve: Serve, logins: dict[str, str]
) -> None:
    worker = serve({verbs.Worker: Done(1, 200, {**WORKER, "protocol": "compatible"})}, logins)
    head = "".join(f"{name}: {value}\r\n" for name, value in {**SIGNED, "content-type": "application/json"}.items())

    async def status_without_a_body() -> bytes:
        url = urlsplit(worker.url)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(
            f"POST /connectors/f1/tasks HTTP/1.1\r\nhost: localhost\r\n{head}content-length: 9\r\n\r\n".encode()
        )
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 30)
        writer.close()
        return answer

    assert asyncio.run(status_without_a_body()).startswith(b"HTTP/1.1 401")


def test_a_signature_opens_nothing_but_the_two_requests_of_workers(serve: Serve, logins: dict[str, str]) -> None:
    worker = serve(settings=logins)
    for method, path in (("PUT", "/connectors/f1/stop"), ("GET", "/connectors/f1/tasks"), ("POST", "/connectors")):
        assert httpx.request(method, worker.url + path, headers=SIGNED).status_code == 401
    assert worker.core.asked == []


def test_clients_of_a_cluster_show_its_login(serve: Serve, logins: dict[str, str]) -> None:
    unsigned = {**WORKER, "protocol": "compatible"}
    worker = serve({verbs.ListConnectors: Done(1, 200, ["f1"]), verbs.Worker: Done(1, 200, unsigned)}, logins)
    config = WorkerConfig.parse({**worker.config.originals, **logins})
    client = RestClient([worker.url], retry_s=0, http=http_client(config))
    assert client.connectors() == ["f1"]
    with pytest.raises(RestError, match=r"rest\.auth\.basic\.file") as refused:
        RestClient([worker.url], retry_s=0).connectors()
    assert refused.value.status == 401
    worker.core.answers[verbs.Fence] = Done(1, 204)
    InternalClient(config).fence(worker.url, "f1", None)
    assert worker.core.verbs()[-1] is verbs.Fence


def test_a_signed_request_shows_no_login(serve: Serve, logins: dict[str, str]) -> None:
    worker = serve({verbs.Fence: Done(1, 204), verbs.Worker: Done(1, 200, {**WORKER, "protocol": None})}, logins)
    config = WorkerConfig.parse({**worker.config.originals, **logins})
    with pytest.raises(RestError) as refused:  # a worker that does not verify signatures wants the login
        InternalClient(config).fence(worker.url, "f1", SessionKeyRecord(b"k" * 32, "HmacSHA256", 1))
    assert refused.value.status == 401


def test_a_login_is_passed_on_to_the_leader(serve: Serve, logins: dict[str, str]) -> None:
    leader = serve({verbs.Stop: Done(1, 204)}, logins)
    follower = serve({verbs.Stop: Forwarded(1, leader.core.url)}, logins)
    assert httpx.put(follower.url + "/connectors/f1/stop", headers=bearer(TOKEN)).status_code == 204


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA, tmp_path: Path) -> dict[str, str]:
    """Settings of an https listener, with the authority as truststore."""
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "key.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return {
        "listeners": "https://127.0.0.1:0",
        "listeners.https.ssl.keystore.type": "PEM",
        "listeners.https.ssl.keystore.location": str(tmp_path / "key.pem"),
        "listeners.https.ssl.truststore.type": "PEM",
        "listeners.https.ssl.truststore.location": str(tmp_path / "ca.pem"),
    }


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_an_https_listener_serves_those_who_trust_its_certificate(
    serve: Serve, tls: dict[str, str], authority: trustme.CA
) -> None:
    worker = serve(settings=tls)
    assert worker.url.startswith("https://127.0.0.1:")
    assert httpx.get(worker.url + "/connectors", verify=trusting(authority)).status_code == 200
    with pytest.raises(httpx.ConnectError, match="certificate"):
        httpx.get(worker.url + "/connectors")
    with pytest.raises(httpx.TransportError):
        httpx.get(worker.url.replace("https", "http") + "/connectors")


def test_workers_and_clients_trust_the_truststore_of_the_listeners(serve: Serve, tls: dict[str, str]) -> None:
    leader = serve({verbs.Stop: Done(1, 204)}, tls)
    follower = serve({verbs.Stop: Forwarded(1, leader.core.url)}, tls)
    RestClient([follower.url], retry_s=0, http=http_client(follower.config)).stop("f1")
    assert leader.core.verbs() == [verbs.Stop]


def test_a_client_certificate_can_be_required(serve: Serve, tls: dict[str, str], authority: trustme.CA) -> None:
    worker = serve(settings={**tls, "listeners.https.ssl.client.auth": "required"})
    with pytest.raises(httpx.TransportError):
        httpx.get(worker.url + "/connectors", verify=trusting(authority))
    assert RestClient([worker.url], retry_s=0, http=http_client(worker.config)).root()["version"]


def test_keys_may_stand_in_the_settings_and_ssl_settings_count_where_listeners_have_none(
    serve: Serve, tls: dict[str, str], authority: trustme.CA
) -> None:
    key, *chain = (
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes().decode().split("-----BEGIN C")
    )
    settings = {
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": "".join(f"-----BEGIN C{part}" for part in chain),
    }
    assert httpx.get(serve(settings=settings).url, verify=trusting(authority)).status_code == 200


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"listeners.https.ssl.keystore.location": ""}, "needs a certificate"),
        ({"listeners.https.ssl.keystore.location": "/nowhere/key.pem"}, "No such file"),
        ({"listeners.https.ssl.keystore.location": "TRUSTSTORE"}, "cannot be used"),
        ({"listeners.https.ssl.keystore.type": "PKCS12"}, "no PKCS#12 store"),
        ({"listeners.https.ssl.client.auth": "maybe"}, "none, requested, required"),
        ({"listeners.https.ssl.client.auth": "required", "listeners.https.ssl.truststore.location": ""}, "truststore"),
        ({"listeners.https.ssl.truststore.location": "/nowhere/ca.pem"}, "truststore.location"),
    ],
)
def test_tls_that_cannot_be_used_stops_the_worker(
    serve: Serve, tls: dict[str, str], changed: Mapping[str, str], problem: str
) -> None:
    place = tls["listeners.https.ssl.truststore.location"]
    settings = {**tls, **{key: place if value == "TRUSTSTORE" else value for key, value in changed.items()}}
    with pytest.raises(RestTlsError, match=problem):
        serve(settings=settings)


def test_http_and_https_may_be_served_side_by_side_and_one_is_advertised(
    serve: Serve, tls: dict[str, str], authority: trustme.CA
) -> None:
    both = {**tls, "listeners": "https://127.0.0.1:0,http://127.0.0.1:0"}
    assert urlsplit(serve(settings=both).url).scheme == "http"
    named = serve(settings={**both, "rest.advertised.listener": "https"})
    assert httpx.get(named.url, verify=trusting(authority)).status_code == 200


def test_admin_operations_can_be_off_or_have_a_listener_of_their_own(serve: Serve) -> None:
    assert httpx.get(serve().url + "/admin/loggers").status_code == 200
    assert httpx.get(serve(settings={"admin.listeners": ""}).url + "/admin/loggers").status_code == 404
    worker = serve(settings={"admin.listeners": "http://127.0.0.1:0"})
    admin, main = worker.server.admin_url.rstrip("/"), worker.url
    assert [httpx.get(url + "/admin/loggers").status_code for url in (admin, main)] == [200, 404]
    assert [httpx.get(url + "/connectors").status_code for url in (admin, main)] == [404, 200]
    assert "/admin/loggers" not in httpx.get(main + "/openapi.json").json()["paths"]


def test_configured_headers_are_in_every_response(serve: Serve) -> None:
    rules = (
        'set Server:mine, "add Cache-Control: no-store, private", add Vary: a, add Vary: b, setDate Expires: 3600000'
    )
    worker = serve(settings={"response.http.headers.config": rules})
    for path in ("/connectors", "/nothing"):
        headers = httpx.get(worker.url + path).headers
        assert (headers.get_list("server"), headers["cache-control"]) == (["mine"], "no-store, private")
        assert headers.get_list("vary") == ["a", "b"]
        assert parsedate_to_datetime(headers["expires"]) > datetime.now(UTC)


def test_a_body_over_the_configured_limit_is_refused_whether_it_says_so_or_not(serve: Serve) -> None:
    worker = serve(settings={"rest.request.max.bytes": "100"})
    body = b'{"a":"' + b"x" * 100 + b'"}'
    for content in (body, iter([body])):
        answer = httpx.put(
            worker.url + "/connectors/f1/config", content=content, headers={"content-type": "application/json"}
        )
        assert (answer.status_code, answer.json()["error_code"]) == (413, 413)
    assert worker.core.asked == []


def test_a_body_that_does_not_come_ends_with_a_408(serve: Serve) -> None:
    worker = serve(request_timeout_ms=100)

    async def half_a_request() -> bytes:
        url = urlsplit(worker.url)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        head = f"host: {url.netloc}\r\ncontent-type: application/json\r\ncontent-length: 10\r\n"
        writer.write(f"PUT /connectors/f1/config HTTP/1.1\r\n{head}\r\n{{".encode())
        answer = await reader.readuntil(b"\r\n")
        writer.close()
        return answer

    assert asyncio.run(half_a_request()).startswith(b"HTTP/1.1 408")


def test_more_requests_at_a_time_than_allowed_are_a_503_that_can_be_tried_again(serve: Serve) -> None:
    worker = serve({verbs.Stop: None}, {"rest.max.concurrent.requests": "1"})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.put, worker.url + "/connectors/f1/stop")
        assert worker.core.reached.wait(timeout=10)
        refused = httpx.get(worker.url + "/connectors")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert httpx.get(worker.url + "/health").status_code == 200
        worker.server.abandon()
        assert waiting.exception(timeout=10) is not None


def test_a_request_that_has_ended_makes_room_for_the_next(serve: Serve) -> None:
    worker = serve(settings={"rest.max.concurrent.requests": "1"})
    assert [httpx.get(worker.url + "/connectors").status_code for _ in range(3)] == [200, 200, 200]


@pytest.mark.parametrize("listener", ["http://127.0.0.1:0", "http://0.0.0.0:0"])
def test_a_web_page_of_another_port_restarts_nothing(serve: Serve, logins: dict[str, str], listener: str) -> None:
    worker = serve({verbs.RestartConnector: Done(1, 204)}, {**logins, "listeners": listener})
    own = f"http://127.0.0.1:{urlsplit(worker.url).port}"
    for origin, status in (("http://127.0.0.1:1", 403), (own.replace("http:", "https:"), 403), (own, 204)):
        headers = {"origin": origin}
        answer = httpx.post(own + "/connectors/f1/restart", headers=headers, auth=("ana", SECRET))
        assert answer.status_code == status
    assert worker.core.verbs() == [verbs.RestartConnector]


def test_a_web_page_of_an_allowed_origin_may_ask_and_read(serve: Serve) -> None:
    worker = serve(
        settings={"access.control.allow.origin": "https://ui.example", "access.control.allow.methods": "GET"}
    )
    answer = httpx.get(worker.url + "/connectors", headers={"origin": "https://ui.example"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://ui.example")
    assert httpx.get(worker.url + "/connectors", headers={"origin": "https://other.example"}).status_code == 403
