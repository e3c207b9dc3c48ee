"""What stood behind placeholders of connectors is in no text of a verdict."""

from __future__ import annotations

from connectx.verify.check.check import _without_secrets
from connectx.verify.check.verdict import Anomaly, Checked, Finding, Verdict


def test_a_verdict_hides_what_stood_behind_placeholders() -> None:
    given = Verdict(
        "invalid",
        (Finding(Anomaly.LOST, 1, "file s3cret", ("c",), "1 row of s3cret is lost"),),
        ("the target of c cannot be read: s3cret is no password",),
        (Checked("file s3cret", ("c",), 1, 2),),
    )
    assert _without_secrets(given, lambda text: text.replace("s3cret", "[hidden]")) == Verdict(
        "invalid",
        (Finding(Anomaly.LOST, 1, "file [hidden]", ("c",), "1 row of [hidden] is lost"),),
        ("the target of c cannot be read: [hidden] is no password",),
        (Checked("file [hidden]", ("c",), 1, 2),),
    )
