"""Builds, checks and signs off a release: `make release`.

It writes to dist/: the sdist, the wheel that was built from the sdist, their SHA-256 sums, and a JSON file that signs
them off with the commit, the versions of what built and tested them, and the results of the tests. A release is refused
unless `make test-all` has passed on the same commit. CONTRIBUTING.md describes the procedure.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import connectx
from tests.support.tiers import ARTEFACTS, ROOT, Part, Result, commit_of, run_tier, summary

DIST: Final = ROOT / "dist"
TWINE: Final = "twine==7.0.0"
UV: Final = Path(sys.executable).with_name("uv")
TESTED_WITH: Final = ("pyspark", "confluent-kafka", "kafka-python", "pyarrow", "pytest", "uv")


class ReleaseRefusedError(Exception):
    """A release cannot be made from this tree: what is missing, and what to run."""


def check_tree(version: str, commit: str, changelog: str, untracked: str) -> None:
    """Refuse a tree that differs from its commit, or a changelog whose newest section is not this version, with a date.

    Raises:
        ReleaseRefusedError: the tree or the changelog is not ready.
    """
    if commit.endswith("-dirty") or untracked:
        raise ReleaseRefusedError(
            f"The tree differs from its commit {commit}: commit or remove the changes.\n{untracked}"
        )
    newest = re.search(r"^## (.+)$", changelog, re.MULTILINE)
    if newest is None or not re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d", newest[1]):
        heading = newest and newest[0]
        raise ReleaseRefusedError(
            f'CHANGELOG.md begins with "{heading}", but connectx.__version__ is {version}: '
            f'write "## {version} - YYYY-MM-DD".'
        )


def check_tag(version: str, tagged: str, commit: str) -> None:
    """Refuse a version whose tag is on another commit. `tagged` is the tag's commit, empty if there is no such tag.

    Raises:
        ReleaseRefusedError: the version was released before.
    """
    if tagged not in ("", commit):
        raise ReleaseRefusedError(
            f"v{version} is the tag of commit {tagged}, and this is {commit}: give this release a new version in "
            "connectx/version.py."
        )


def commit_of_tag(tag: str, root: Path = ROOT) -> str:
    """The hash of the commit that a tag names, empty if there is no such tag."""
    command = ("git", "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}")
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.strip()


def section_of(changelog: str, version: str) -> str | None:
    """The text of a version's section with its heading, None if there is none."""
    found = re.search(rf"^## {re.escape(version)}\b.*?(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found and found[0].strip()


def results_of(record: Mapping[str, Any] | None, commit: str) -> dict[str, Any]:
    """The results of `make test-all` for the sign-off, from its record in test-artefacts/.

    Raises:
        ReleaseRefusedError: there is no record, it is of another commit, or tests failed or were skipped.
    """
    if record is None or record.get("commit") != commit:
        raise ReleaseRefusedError(f"`make test-all` has not run on commit {commit}: run it, then make release again.")
    result = Result(flaky=record["flaky"], failed=record["failed"], passed=record["passed"])
    result.skipped.update(record.get("skipped", {}))
    if not result.is_good or result.skipped:
        raise ReleaseRefusedError(f"`make test-all` did not pass whole on commit {commit}:\n{summary(result)}")
    return {"passed": result.passed, "flaky": result.flaky, "failed": result.failed, "wall_s": round(record["wall_s"])}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def packed_files(archive: Path) -> list[str]:
    """The files in a wheel or an sdist, sorted; those of an sdist relative to its folder."""
    if archive.suffix == ".whl":
        return sorted(zipfile.ZipFile(archive).namelist())
    with tarfile.open(archive) as packed:
        return sorted(one.name.partition("/")[2] for one in packed.getmembers() if one.isfile())


def generator_of(wheel: Path) -> str:
    """The program that built a wheel, with its version."""
    packed = zipfile.ZipFile(wheel)
    (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/WHEEL"))
    found = re.search(r"^Generator: (.+)$", packed.read(name).decode(), re.MULTILINE)
    return found[1] if found else "unknown"


def sign_off(version: str, commit: str, files: list[Path], tests: Mapping[str, Any]) -> dict[str, Any]:
    """The content of the sign-off file."""
    wheel = next(path for path in files if path.suffix == ".whl")
    return {
        "project": "connectx",
        "version": version,
        "commit": commit,
        "sha256": {path.name: sha256(path) for path in files},
        "built_by": generator_of(wheel),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "tested_with": {name: metadata.version(name) for name in TESTED_WITH},
        "requirements_lock_sha256": sha256(ROOT / "requirements.lock"),
        "tests": tests,
    }


def build(folder: Path) -> list[Path]:
    """Build the sdist, and from it the wheel, dated by the commit: the same commit gives the same bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    dated = ("git", "show", "--no-patch", "--format=%ct", "HEAD")
    seconds = subprocess.run(dated, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": seconds}
    subprocess.run([UV, "build", "--quiet", "--out-dir", folder, ROOT], env=environment, check=True)
    return sorted(path for path in folder.iterdir() if path.suffix in (".whl", ".gz"))


def main() -> int:
    """Make a release in dist/; 0 if it is signed off."""
    version, commit = connectx.__version__, commit_of()
    untracked = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    path = ARTEFACTS / "test-all.json"
    try:
        check_tree(version, commit, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), untracked)
        check_tag(version, commit_of_tag(f"v{version}"), commit)
        everything = results_of(json.loads(path.read_text()) if path.exists() else None, commit)
    except ReleaseRefusedError as error:
        print(error, file=sys.stderr)
        return 1
    files = build(DIST)
    subprocess.run([UV, "tool", "run", "--quiet", TWINE, "check", "--strict", *files], check=True)
    wheel_tests = run_tier([(Part("release", ("tests/wheel", f"--built={DIST}")),)])
    print(summary(wheel_tests))
    if not wheel_tests.is_good:
        return 1
    outcome = {"passed": wheel_tests.passed, "flaky": wheel_tests.flaky, "failed": wheel_tests.failed}
    signed = sign_off(version, commit, files, {"make test-all": everything, "tests/wheel on these files": outcome})
    (DIST / "SHA256SUMS").write_text("".join(f"{sum_}  {name}\n" for name, sum_ in signed["sha256"].items()))
    (DIST / f"connectx-{version}.sign-off.json").write_text(json.dumps(signed, indent=1) + "\n")
    print(f"connectx {version} is signed off in {DIST.relative_to(ROOT)}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
