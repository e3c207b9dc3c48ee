"""Next steps in the words of a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import connectx
from connectx.cli import remedies
from connectx.cli.remedies import in_terminal
from connectx.errors.transfer import ImportRefusedError
from connectx.rest import exchange

SOURCE = "".join(path.read_text(encoding="utf-8") for path in Path(connectx.__file__).parent.rglob("*.py")
                 if path.name != "remedies.py")  # fmt: skip


@pytest.mark.parametrize(
    ("python", "command"),
    [
        (
            'Repair the cause, then cluster["orders"].restart(include_tasks=True, only_failed=True).',
            "Repair the cause, then connectx restart orders --tasks --only-failed.",
        ),
        ('Repair the cause, then cluster["orders"].restart().', "Repair the cause, then connectx restart orders."),
        ("the settings (give them with config=)", "the settings (give them with --worker-config)"),
        ('Attach with bootstrap_servers="host:port".', "Attach with --bootstrap-servers host:port."),
        ("Set group_id=, or check bootstrap_servers=.", "Set --group-id, or check --bootstrap-servers."),
        (
            'Name it: config={"status.storage.topic": ...}; or --worker-config with a worker\'s properties.',
            "Name it: --worker-config with a worker's properties.",
        ),
        (
            'Give them as secrets={"connector": {"key": "value"}}, or export again with secrets=True.',
            "Give them with --secrets-file, or export again with --secrets.",
        ),
        ("Stop it, or pass overwrite=True.", "Stop it, or pass --overwrite."),
        (
            "Wait longer with timeout=, or see cluster.events for what happened.",
            "Wait longer with --wait, or see what happens with connectx watch.",
        ),
    ],
)  # fmt: skip
def test_a_remedy_names_the_command(python: str, command: str) -> None:
    assert in_terminal(python) == command


def test_a_login_is_given_by_options() -> None:
    text = in_terminal(exchange._LOG_IN)
    assert "--basic-file or --bearer-file" in text
    assert "cx.attach" not in text


def test_every_replaced_phrase_is_still_in_some_message() -> None:
    """A message that is worded anew takes its phrase with it."""
    literals = [re.sub(r"\\(.)", r"\1", re.split(r"\(\[|\[\^|\.\*|\.\.\.", pattern)[0]).rstrip("\\")
                for pattern, _ in remedies._WORDS]  # fmt: skip
    assert [literal for literal in literals if literal not in SOURCE] == []


def test_an_error_of_a_command_is_translated(capsys: pytest.CaptureFixture[str]) -> None:
    from typer import Exit

    from connectx.cli.common import reporting_errors

    def fail() -> None:
        with reporting_errors():
            raise ImportRefusedError("Nothing was imported.", next_step="Stop it, or pass overwrite=True.")

    with pytest.raises(Exit):
        fail()
    assert capsys.readouterr().err == "Nothing was imported. Stop it, or pass --overwrite.\n"
