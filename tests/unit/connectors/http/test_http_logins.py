"""How HttpSink logs in: tokens of OAuth 2.0's client credentials, and certificates, against a local HTTPS server."""

from __future__ import annotations

import base64
import json
import logging
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from connectx.connectors.http.errors import HttpError, HttpLoginError, HttpUnavailableError
from connectx.connectors.http.oauth import OAuthSettings, Tokens
from connectx.connectors.http.sink import HttpSink
from connectx.errors.plugins import ConfigError
from tests.support.http_server import Answer, Received, Service, http_service
from tests.unit.connectors.http.test_http_sink import Sink

SECRET = "s3cr3t & more"
HOST = "127.0.0.1"


class Shop:
    """A target and a token service at one address. A token is good until it is revoked."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.asked: list[Received] = []
        self.good: set[str] = set()
        self.answers: list[Answer] = []
        service.answer = self.answer

    def answer(self, request: Received) -> Answer:
        if request.path == "/token":
            self.asked.append(request)
            if self.answers:
                return self.answers.pop(0)
            token = f"token-{len(self.asked)}"
            self.good = {token}
            return Answer(200, json.dumps({"access_token": token, "token_type": "bearer", "expires_in": 3600}))
        known = request.headers.get("Authorization", "").removeprefix("Bearer ") in self.good
        return Answer(200) if known else Answer(401, f"bad token {request.headers.get('Authorization')}")

    def sink(self, **more: str) -> Sink:
        given = {"auth_type": "oauth2", "oauth2_client_id": "shop", "oauth2_client_secret": SECRET}
        return Sink(f"{self.service.url}/in", oauth2_token_url=f"{self.service.url}/token", **given, **more)


@pytest.fixture
def shop() -> Iterator[Shop]:
    with http_service() as service:
        yield Shop(service)


@pytest.mark.parametrize("mode", ["header", "url"])
def test_one_token_is_fetched_with_the_clients_credentials_and_serves_many_requests(shop: Shop, mode: str) -> None:
    sink = shop.sink(oauth2_client_scope="orders", oauth2_client_auth_mode=mode)
    sink.put(["a", "b"])
    (asked,) = shop.asked
    form = {name: values[0] for name, values in parse_qs(asked.body).items()}
    login = asked.headers.get("Authorization", "")
    expected = {"grant_type": "client_credentials", "scope": "orders"}
    if mode == "header":
        assert base64.b64decode(login.removeprefix("Basic ")).decode() == "shop:s3cr3t+%26+more"
    else:
        assert login == ""
        expected |= {"client_id": "shop", "client_secret": SECRET}
    assert form == expected
    assert [request.headers["Authorization"] for request in shop.service.accepted[1:]] == ["Bearer token-1"] * 2
    sink.task.stop()


def test_a_token_that_is_refused_is_fetched_again_once(shop: Shop) -> None:
    sink = shop.sink()
    sink.put(["a"])
    shop.good.clear()
    sink.put(["b"], start=1)
    assert len(shop.asked) == 2
    shop.answers = [Answer(200, json.dumps({"access_token": "token-of-another"}))]
    shop.good.clear()
    with pytest.raises(HttpError, match=r"answered 401 .* bad token Bearer \[hidden\] to POST"):
        sink.put(["c"], start=2)
    assert len(shop.asked) == 3
    sink.task.stop()


@pytest.mark.parametrize(
    ("life", "valid_s", "answer"),
    [
        (100, 89, {"expires_in": 100}),
        (3600, 3569, {"expires_in": "3600"}),
        (300, 269, {}),
        (300, 269, {"expires_in": []}),
    ],
)
def test_a_token_is_renewed_before_it_ends(life: int, valid_s: int, answer: dict[str, object]) -> None:
    count = 0

    def respond(request: httpx.Request) -> httpx.Response:
        nonlocal count
        count += 1
        return httpx.Response(200, json={"access_token": str(count), **answer})

    now_s = 1000.0
    client = httpx.Client(transport=httpx.MockTransport(respond))
    tokens = Tokens(OAuthSettings("http://t/token", "c", "s"), client, lambda: now_s)
    assert tokens.current() == "1"
    now_s += valid_s
    assert tokens.current() == "1"
    now_s += life - valid_s
    assert tokens.current() == "2"


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (Answer(503), HttpUnavailableError, r"The token service .*/token answered 503\."),
        (Answer(429), HttpUnavailableError, r"answered 429\."),
        (
            Answer(401, json.dumps({"error": "invalid_client", "error_description": f"no {SECRET}"})),
            HttpLoginError,
            r"answered 401 \(invalid_client: no \[hidden\]\)",
        ),
        (Answer(400, "no json"), HttpLoginError, r"answered 400\."),
        (Answer(200, "[]"), HttpLoginError, "answered without a token in access_token"),
        (Answer(200, '{"access_token": "two\\nlines"}'), HttpLoginError, "answered without a token"),
    ],
)
def test_a_token_service_that_fails_is_tried_again_and_one_that_refuses_fails_the_task(
    shop: Shop, answer: Answer, error: type[Exception], message: str
) -> None:
    sink = shop.sink()
    shop.answers = [answer]
    with pytest.raises(error, match=message) as caught:
        sink.put(["a"])
    assert SECRET not in str(caught.value)
    assert bool(sink.context.pauses_ms) == (error is HttpUnavailableError)
    sink.task.stop()


def test_a_token_service_that_cannot_be_reached_is_tried_again(shop: Shop) -> None:
    sink = Sink(
        shop.service.url,
        auth_type="oauth2",
        oauth2_token_url="http://127.0.0.1:1/token?key=hidden-key",
        oauth2_client_id="shop",
        oauth2_client_secret=SECRET,
    )
    with pytest.raises(HttpUnavailableError, match=r"token service http://127\.0\.0\.1:1/token cannot be reached"):
        sink.put(["a"])
    sink.task.stop()


def test_tokens_and_secrets_are_in_no_log(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpcore").setLevel(logging.INFO)  # its DEBUG lines are whole headers
    sink = shop.sink(oauth2_client_auth_mode="url")
    sink.put(["a"])
    sink.task.stop()
    assert not [text for text in (SECRET, "token-1") if text in caplog.text or text in repr(sink.task)]


class Papers:
    """A CA, and the certificates that it made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority = trustme.CA()
        self.authority = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(self.authority)

    def server(self) -> ssl.SSLContext:
        """A server's, which asks its clients for theirs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(HOST).configure_cert(context)
        self._authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self, password: str = "") -> Path:
        """Key and certificates of a client in one file."""
        issued = self._authority.issue_cert("client.example")
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            protection = serialization.BestAvailableEncryption(password.encode())
        written = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
        path = self.folder / "client.pem"
        path.write_bytes(written + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return path


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path)


@pytest.mark.parametrize("password", ["", "of the key"])
def test_a_server_and_a_client_with_certificates_of_a_private_ca_trust_each_other(
    papers: Papers, password: str
) -> None:
    keystore = {"https_ssl_keystore_location": str(papers.client(password))}
    keystore |= {"https_ssl_key_password": password} if password else {}
    with http_service(papers.server()) as service:
        sink = Sink(service.url, https_ssl_truststore_location=str(papers.authority), **keystore)
        sink.put(["a"])
        sink.task.stop()
        assert [request.body for request in service.accepted] == ["a"]


@pytest.mark.parametrize("left_out", ["https_ssl_truststore_location", "https_ssl_keystore_location"])
def test_without_a_certificate_the_target_counts_as_unreachable(papers: Papers, left_out: str) -> None:
    given = {
        "https_ssl_truststore_location": str(papers.authority),
        "https_ssl_keystore_location": str(papers.client()),
    }
    del given[left_out]
    with http_service(papers.server()) as service:
        sink = Sink(service.url, **given)
        with pytest.raises(HttpUnavailableError, match="cannot be reached"):
            sink.put(["a"])
        sink.task.stop()
        assert service.received == []


def wrong_password(papers: Papers) -> dict[str, str]:
    return {"https.ssl.keystore.location": str(papers.client("right")), "https.ssl.key.password": "wrong-one"}


def no_password(papers: Papers) -> dict[str, str]:
    return {"https.ssl.keystore.location": str(papers.client("right"))}


def no_key(papers: Papers) -> dict[str, str]:
    return {"https.ssl.keystore.location": str(papers.authority)}


def no_file(papers: Papers) -> dict[str, str]:
    return {"https.ssl.keystore.location": str(papers.folder / "none.pem")}


@pytest.mark.parametrize("made", [wrong_password, no_password, no_key, no_file])
def test_a_keystore_that_cannot_be_used_is_refused(papers: Papers, made: Callable[[Papers], dict[str, str]]) -> None:
    config = {"http.api.url": "https://127.0.0.1/in", **made(papers)}
    (message,) = HttpSink.validate(config)["https.ssl.keystore.location"]
    assert "cannot be used as PEM key and certificates" in message
    assert "wrong-one" not in message


@pytest.mark.parametrize("missing", ["oauth2.token.url", "oauth2.client.id", "oauth2.client.secret"])
def test_oauth_needs_a_service_and_a_client(missing: str) -> None:
    config = {
        "http.api.url": "http://127.0.0.1/in",
        "auth.type": "OAuth2",
        "oauth2.token.url": "http://127.0.0.1/token",
        "oauth2.client.id": "shop",
        "oauth2.client.secret": SECRET,
    }
    del config[missing]
    assert HttpSink.validate(config) == {missing: [f"auth.type=oauth2 needs {missing}"]}
    with pytest.raises(ConfigError):
        Sink(config["http.api.url"], auth_type="oauth2", oauth2_token_url="http://x/${id}")
