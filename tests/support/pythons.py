"""Runs the unit tests on every other supported Python that this machine has: `make pythons`.

    python -m tests.support.pythons

Looks on PATH and among pyenv's versions; each gets a separate environment, `.venv-<version>`, from the lock. A
version that is not here is named: it was not tested.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SUPPORTED: Final = ((3, 11), (3, 12), (3, 13))
UV: Final = Path(sys.executable).with_name("uv")
STORED: Final = ("--config-settings-package", "pyspark:--build-option=--compression=stored")


def candidates(version: tuple[int, int], home: Path) -> Iterator[Path]:
    """Programs that may be this Python: pyenv's own, newest first, since its shims work for one version at a time."""
    name = f"python{version[0]}.{version[1]}"
    yield from sorted(home.glob(f".pyenv/versions/{version[0]}.{version[1]}.*/bin/{name}"), reverse=True)
    if found := shutil.which(name):
        yield Path(found)


def find(version: tuple[int, int], home: Path) -> Path | None:
    """The first candidate that runs and is this version."""
    code = f"import sys, venv; sys.exit(sys.version_info[:2] != {version})"
    for program in candidates(version, home):
        if subprocess.run([program, "-c", code], capture_output=True, check=False).returncode == 0:
            return program
    return None


def test(version: tuple[int, int], program: Path) -> bool:
    """Make or renew the environment and run the unit tests in it; True when they pass."""
    name = ".".join(map(str, version))
    python = ROOT / f".venv-{name}" / "bin" / "python"
    install = (UV, "pip", "install", "--quiet", "--python", python)
    steps: list[tuple[str | Path, ...]] = [
        (UV, "venv", "--quiet", "--allow-existing", "--python", program, python.parents[1]),
        (*install, "--no-deps", "--require-hashes", *STORED, "-r", ROOT / "requirements.lock"),
        (*install, "--no-deps", "--editable", ROOT),
        (python, "-m", "pytest", "tests/unit", "-n", "2", "-p", "no:schemathesis"),
    ]
    print(f"Python {name}: {program}", flush=True)
    return all(subprocess.run(step, cwd=ROOT, env=_env(), check=False).returncode == 0 for step in steps)


def _env() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}


def main() -> int:
    """Test each; 0 when none that is here has failed."""
    others = [version for version in SUPPORTED if version != sys.version_info[:2]]
    found = {version: find(version, Path.home()) for version in others}
    outcomes = {version: test(version, program) for version, program in found.items() if program is not None}
    for version in others:
        verdict = {None: "NOT TESTED: not on PATH and not among pyenv's versions", True: "passed", False: "FAILED"}
        print(f"Python {version[0]}.{version[1]}: {verdict[outcomes.get(version)]}")
    return 0 if all(outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
