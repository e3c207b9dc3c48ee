"""Rules of response.http.headers.config."""

from __future__ import annotations

import pytest

from connectx.model.header_rules import HeaderRule, header_rules


def test_rules_are_separated_by_commas_outside_of_quotes() -> None:
    assert header_rules('set X-Frame-Options:DENY, "add Cache-Control: no-cache, no-store",setDate Expires: -1000') == (
        HeaderRule("X-Frame-Options", "DENY", replaces=True, is_date=False),
        HeaderRule("Cache-Control", "no-cache, no-store", replaces=False, is_date=False),
        HeaderRule("Expires", "-1000", replaces=True, is_date=True),
    )
    assert header_rules(" ") == ()


@pytest.mark.parametrize(
    "text", ["X: y", "put X: y", "set X", "set X y: z", "set X: a\nb", "set X: ü", "addDate X: now"]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid format of header config"):
        header_rules(text)
