"""Which versions of a plugin a range takes, in Maven's notation."""

from __future__ import annotations

import pytest

from connectx.plugins.versions import version_problem


def of(version: str | None) -> type:
    return type("Plugin", (), {"version": version})


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("1.2", None, True),
        ("1.2", " latest ", True),
        ("1.2", "1.2", True),
        ("1.2", "1.2.0", True),
        ("1.2", "[1.2]", True),
        ("1.2", "1.3", False),
        ("1.2", "[1.0,2.0)", True),
        ("2.0", "[1.0,2.0)", False),
        ("2.0", "[1.0,2.0]", True),
        ("1.0", "(1.0,)", False),
        ("1.10", "(1.9,)", True),
        ("1.1", "(,1.0],[1.2,)", False),
        ("1.2", "(,1.0], [1.2,)", True),
        ("1.0-rc1", "[1.0,)", False),
        ("1.0-SNAPSHOT", "(1.0-rc2,1.0)", True),
        ("1.0.Final", "1.0", True),
        (None, "[0,)", False),
        ("1.0", "[1.0", False),
        ("1.0", "(1.0)", False),
        ("1.0", "[]", False),
        ("1.0", "[1.0] or so", False),
        ("1.007", "1.7", True),
        ("1.0", "9" * 5000, False),
        ("1.0", f"[1,{'9' * 5000}]", True),
    ],
)
def test_a_plugin_is_of_a_version_or_range(version: str | None, wanted: str | None, fits: bool) -> None:
    assert (version_problem(of(version), wanted) is None) == fits
