"""NOTICE names the licence of each package that pip installs beside connectx."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def test_each_package_that_pip_installs_is_in_the_notice() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: listed for name, listed in project["optional-dependencies"].items() if name != "dev"}
    wanted = {
        re.split(r"[^\w-]", requirement)[0]
        for listed in (project["dependencies"], *extras.values())
        for requirement in listed
    } - {"connectx"}
    notice = (ROOT / "NOTICE").read_text()
    named = {line.split()[0] for line in notice.splitlines() if re.match(r"    \S+\s{2,}\S", line)}
    assert named == wanted
