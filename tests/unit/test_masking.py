"""Each form of a secret, in each output: none of it is seen, whatever characters it has."""

from __future__ import annotations

import base64
import html
import json
import logging
from collections.abc import Callable, Mapping
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from connectx import views
from connectx.api.transfer.exporter import hidden_values
from connectx.cli.worker_log import _ConnectLine
from connectx.core import messages
from connectx.errors.base import ConnectxError
from connectx.model.events import Transition
from connectx.model.ids import TaskId
from connectx.model.payloads import TaskState
from connectx.model.states import State
from connectx.plugins.hidden_values import HiddenValues
from connectx.recording.codec import Codec, Mask
from connectx.runtime.masking import masked_errors, masked_transition
from connectx.runtime.tasks.connector_host import trace_of

MARK = "xK7q"
"""In every secret; what must not be seen."""

FORMS: Mapping[str, Callable[[str], str]] = {
    "url": lambda s: f"postgresql://me:{s}@db.example:5432/shop",
    "url without a user": lambda s: f"redis://:{s}@cache.example",
    "encoded url": lambda s: f"mysql://me:{quote(s, safe='')}@db.example/shop?sslMode=REQUIRED",
    "urls": lambda s: f"http://a.example:8081,http://me:{quote(s, safe='')}@b.example:8081",
    "query": lambda s: f"jdbc:mysql://h/db?user=me&password={quote_plus(s)}&ssl_ca=x",
    "store password in a url": lambda s: f"jdbc:mariadb://h/db?trustStorePassword={quote_plus(s)}",
    "api key": lambda s: f"https://h/in?api_key={quote_plus(s)}&x=1",
    "access key": lambda s: f"s3://b?secret_access_key={quote_plus(s)}",
    "signature": lambda s: f"https://b.example/x?X-Amz-Signature={quote_plus(s)}",
    "libpq": lambda s: "host=db password='" + s.replace("\\", "\\\\").replace("'", "\\'") + "' user=me",
    "libpq bare": lambda s: f"host=db password={quote(s, safe='')} user=me",
    "passwd": lambda s: f"passwd={quote(s, safe='')}",
    "json": lambda s: json.dumps({"user": "me", "password": s}),
    "json of a key": lambda s: json.dumps({"connection.pwd": s}, ensure_ascii=False),
    "repr": lambda s: repr({"password": s}),
    "arguments": lambda s: f"connect(user='me', password={s!r})",
    "jaas": lambda s: f'PlainLoginModule required username="me" password={json.dumps(s)};',
    "azure": lambda s: f"AccountName=me;AccountKey={base64.b64encode(s.encode()).decode() + MARK};EndpointSuffix=x",
    "bearer": lambda s: f"Authorization: Bearer {quote(s, safe='')}",
    "bearer of a dict": lambda s: repr({"Authorization": f"Bearer {quote(s, safe='')}"}),
    "bearer alone": lambda s: f"sent Bearer {quote(s, safe='')} to it",
    "basic": lambda s: f"authorization: Basic {base64.b64encode(s.encode()).decode()}{MARK}",
    "pem": lambda s: (
        f"-----BEGIN PRIVATE KEY-----\n{base64.b64encode(s.encode()).decode()}\n{MARK}\n-----END PRIVATE KEY-----"
    ),
}

ENCODED: Mapping[str, Callable[[str], str]] = {
    "as it is": str,
    "with its line break": lambda s: f"{s}\n",
    "repr": repr,
    "repr of a dict": lambda s: repr({"p": s, "q": f"{s}'"}),
    "repr of bytes": lambda s: repr(s.encode()),
    "json": json.dumps,
    "plain json": lambda s: json.dumps({"p": s}, ensure_ascii=False),
    "url": lambda s: quote(s, safe=""),
    "path": quote,
    "form": quote_plus,
    "html": html.escape,
    "sql": lambda s: "'" + s.replace("'", "''") + "'",
}


def _raised(text: str) -> ConnectxError:
    try:
        try:
            raise OSError(text)
        except OSError as error:
            raise ConnectxError(f"It failed: {text}", next_step=text) from error
    except ConnectxError as raised:
        return raised
    raise AssertionError("it was raised")


def _logged(text: str) -> str:
    seen: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(_ConnectLine().format(record))

    log, handler = logging.getLogger("connectx.masking.test"), Keeping()
    log.addHandler(handler)
    log.propagate = False
    try:
        log.error("it failed: %s", text)
        log.error("it failed", exc_info=_raised(text))
    finally:
        log.removeHandler(handler)
    return "\n".join(seen)


def _event(text: str, masked: Callable[[str], str]) -> str:
    task = TaskState(State.FAILED, trace=text)
    shown = masked_transition(Transition(task, "c", 0), masked)
    return repr(shown)


OUTPUTS: Mapping[str, Callable[[str], str]] = {
    "text": views.masked_text,
    "table": lambda t: views.text_table([{"cell": t}]),
    "html": lambda t: views.html_facts({"fact": t}) + views.html_details("trace", t),
    "card": lambda t: views.Form("x", {"fact": t}, details=[("trace", t)]).html,
    "configuration": lambda t: str(views.masked({"transforms.x.note": t})),
    "export": lambda t: str({"note": t, **hidden_values({"note": t}, frozenset())}),
    "error": lambda t: f"{_raised(t)!r}{_raised(t)._repr_html_()}",
    "trace": lambda t: trace_of(_raised(t)),
    "log": _logged,
    "event": lambda t: _event(t, HiddenValues().masked),
    "rest": HiddenValues().masked,
    "recording": lambda t: json.dumps(Codec(()).encode({"reason": t}, Mask(b"salt"))),
}

SECRETS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12).map(
    lambda text: f"{MARK}{text}{MARK}"
)
FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def plain(secret: str) -> str:
    """As an unquoted place can hold it: no separators."""
    return "".join(c for c in secret if c.isalnum() or c in "@:%!$*()+,;=-._~#&^|")


@pytest.mark.parametrize("output", OUTPUTS)
@settings(FEW, max_examples=100)
@given(form=st.sampled_from([*FORMS]), secret=SECRETS)
def test_a_secret_in_a_usual_form_is_in_no_output(output: str, form: str, secret: str) -> None:
    in_url = form in ("url", "url without a user")
    shown = OUTPUTS[output](f"It failed with {FORMS[form](plain(secret) if in_url else secret)} here")
    assert MARK not in shown
    assert "[hidden]" in shown


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", [f"{MARK}@{MARK}", f"{MARK}'\"\\{MARK}", f"{MARK} {MARK}", f"{MARK}://a:b@{MARK}"])
def test_each_form_hides_each_character(form: str, secret: str) -> None:
    in_url = form in ("url", "url without a user")
    assert MARK not in views.masked_text(FORMS[form](plain(secret) if in_url else secret))


@pytest.mark.parametrize("encoded", ENCODED)
@FEW
@given(secret=SECRETS)
@example(secret=f"{MARK}'\"\\\n{MARK}")
def test_the_value_of_a_placeholder_is_hidden_in_each_way_that_texts_quote_it(encoded: str, secret: str) -> None:
    hidden = HiddenValues()
    hidden.add(f"{secret}\n")
    assert MARK not in hidden.masked(f"the value {ENCODED[encoded](secret)} is refused")


@pytest.mark.parametrize(
    "key",
    [
        "my.pwd",
        "http.proxy.pass",
        "config.providers.vault.param.pwd",
        "PASSWORD",
        "db.passwd",
        "login.passcode",
        "ssl.key.password",
        "trustStorePassword",
        "oauth2.client.secret",
        "aws_secret_access_key",
        "accessKey",
        "azure.sas_token",
        "private_key",
        "basic.auth.user.info",
        "sasl.jaas.config",
        "http.authorization",
        "session.cookie",
        "x.signature",
        "headers",
    ],
)
def test_the_value_of_a_key_that_is_named_as_a_secret_is_hidden(key: str) -> None:
    assert views.masked({key: MARK}) == {key: "[hidden]"}


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me@db.example/shop",
        "http://host:8083/connectors?name=a@b",
        "http://a:1,http://b:2/x@y",
        "Set key.converter=JsonConverter and tasks.max=3.",
        "Correct connection.password: the server refuses it.",
        "connection.password=${file:/run/secrets:password}",
        "aws_access_key_id=AKIA1",
        "basic.auth.credentials.source=URL",
        'Basic realm="Kafka Connect", Bearer realm="Kafka Connect"',
        "config=3, design=4, compass=5",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert views.masked_text(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        "://a:",
        "://a:b@",
        "password=",
        "'password':'",
        'password="\\',
        "Bearer ",
        "a" * 9,
        "-----BEGIN PRIVATE KEY-----",
        "secret token password",
        "authorization:",
        "\\",
        "= '",
    ],
)
def test_a_long_text_of_others_does_not_hold_the_masker(piece: str) -> None:
    views.masked_text(piece * (200_000 // len(piece)))  # with a time that is its square it would not end


def test_errors_in_stimuli_are_masked_before_the_core_has_them() -> None:
    stimulus = messages.TaskFailed(TaskId("c", 0), 1, f"password={MARK}")
    assert MARK not in repr(masked_errors(stimulus, HiddenValues().masked))
