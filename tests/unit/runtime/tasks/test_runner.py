"""What a task's thread tells the history of errors."""

from __future__ import annotations

from connectx.model.events import EventKind
from connectx.runtime.tasks.runner import _without_secrets
from tests.support.histories import transition


def test_a_text_that_quotes_a_whole_record_is_cut_and_its_secrets_are_hidden() -> None:
    skipped = transition(EventKind.RECORDS_SKIPPED, data={"records": 1, "reason": "s3cret" + "x" * 1_000_000})
    recorded = _without_secrets(skipped, lambda text: text.replace("s3cret", "[hidden]"))
    assert recorded.data == {"records": 1, "reason": f"[hidden]{'x' * 3992} … (996,008 more characters)"}
    short = transition(EventKind.RECORDS_SKIPPED, data={"records": 1, "reason": "x" * 4000})
    assert _without_secrets(short, lambda text: text) == short
