"""A release is refused without tests of its commit, and its sign-off names what was built and tested."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import connectx
from connectx.plugins.registry import Plugins
from tests.support.release import (
    ReleaseRefusedError,
    check_tag,
    check_tree,
    commit_of_tag,
    packed_files,
    results_of,
    section_of,
    sha256,
    sign_off,
)
from tests.support.tiers import ROOT, commit_of

READY = "# Changelog\n\n## 0.2.0 - 2026-11-23\n\n## 0.1.0\n"


def record(**changes: Any) -> dict[str, Any]:
    return {"commit": "abc", "passed": 3, "failed": [], "flaky": [], "wall_s": 61.4, "seconds": {}} | changes


def test_a_tree_at_its_commit_with_a_dated_section_of_the_version_is_ready() -> None:
    check_tree("0.2.0", "abc", READY, "")


@pytest.mark.parametrize(
    ("version", "commit", "changelog", "untracked", "reason"),
    [
        ("0.2.0", "abc-dirty", READY, "", "differs from its commit abc-dirty"),
        ("0.2.0", "abc", READY, "notes.txt\n", "notes.txt"),
        ("0.3.0", "abc", READY, "", 'begins with "## 0.2.0 - 2026-11-23"'),
        ("0.2.0", "abc", "## 0.2.0\n", "", 'write "## 0.2.0 - YYYY-MM-DD"'),
        ("0.2.0", "abc", "", "", 'begins with "None"'),
    ],
)
def test_a_tree_that_is_not_ready_is_refused(
    version: str, commit: str, changelog: str, untracked: str, reason: str
) -> None:
    with pytest.raises(ReleaseRefusedError, match=reason):
        check_tree(version, commit, changelog, untracked)


@pytest.mark.parametrize("found", [None, record(commit="abd"), record(commit="abc-dirty"), {"wall_s": 1}])
def test_a_commit_that_was_not_tested_is_refused(found: dict[str, Any] | None) -> None:
    with pytest.raises(ReleaseRefusedError, match="`make test-all` has not run on commit abc"):
        results_of(found, "abc")


def test_a_commit_whose_tests_failed_is_refused_with_their_names() -> None:
    with pytest.raises(ReleaseRefusedError, match="FAILED: test_x"):
        results_of(record(failed=["test_x"]), "abc")


def test_a_commit_whose_tests_were_skipped_is_refused_with_the_reason() -> None:
    with pytest.raises(ReleaseRefusedError, match="54 tests"):
        results_of(record(skipped={"no shelf": 54}), "abc")


def test_a_version_whose_tag_is_on_another_commit_is_refused(tmp_path: Path) -> None:
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "1"), ("tag", "-a", "v1", "-m", "1")):
        subprocess.run([*git, *command], check=True)
    first = commit_of_tag("v1", tmp_path)
    assert first == commit_of(tmp_path)
    check_tag("1", first, first)
    check_tag("2", commit_of_tag("v2", tmp_path), first)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "2"], check=True)
    with pytest.raises(ReleaseRefusedError, match=f"v1 is the tag of commit {first}"):
        check_tag("1", commit_of_tag("v1", tmp_path), commit_of(tmp_path))


def test_results_count_tests_and_name_flaky_ones() -> None:
    found = results_of(record(flaky=["test_y"]), "abc")
    assert found == {"passed": 3, "flaky": ["test_y"], "failed": [], "wall_s": 61}


def test_a_sign_off_names_commit_checksums_builder_and_versions(tmp_path: Path) -> None:
    wheel, sdist = tmp_path / "connectx-0.2.0-py3-none-any.whl", tmp_path / "connectx-0.2.0.tar.gz"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("connectx/__init__.py", "")
        packed.writestr("connectx-0.2.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: hatchling 1.2\n")
    with tarfile.open(sdist, "w:gz") as packed_sdist:
        packed_sdist.addfile(tarfile.TarInfo("connectx-0.2.0/PKG-INFO"), io.BytesIO())
    assert packed_files(wheel) == ["connectx-0.2.0.dist-info/WHEEL", "connectx/__init__.py"]
    assert packed_files(sdist) == ["PKG-INFO"]
    signed = sign_off("0.2.0", "abc", [sdist, wheel], {"make test-all": {"passed": 3}})
    assert (signed["version"], signed["commit"], signed["built_by"]) == ("0.2.0", "abc", "hatchling 1.2")
    assert signed["sha256"] == {sdist.name: sha256(sdist), wheel.name: sha256(wheel)}
    assert signed["tested_with"].keys() >= {"pyspark", "pyarrow"}
    assert signed["tests"] == {"make test-all": {"passed": 3}}


def test_the_newest_version_of_the_changelog_is_that_of_the_package() -> None:
    versions = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[0] == connectx.__version__


CHANGELOG = "# Changelog\n\n## Unreleased\n\n- c\n\n## 0.2.0 - 2026-11-23\n\n- b\n\n## 0.1.0\n\n- a\n"


def test_the_section_of_a_version_ends_at_the_next_heading() -> None:
    assert section_of(CHANGELOG, "0.2.0") == "## 0.2.0 - 2026-11-23\n\n- b"
    assert section_of(CHANGELOG, "0.1.0") == "## 0.1.0\n\n- a"
    assert section_of(CHANGELOG, "0.3.0") is None


def test_sections_of_released_versions_are_as_they_were_at_their_tags() -> None:
    """What is changed later belongs under Unreleased. Without tags, as in a shallow clone, nothing is compared."""
    now = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for version in re.findall(r"^## (\d\S*)", now, re.MULTILINE):
        if commit_of_tag(f"v{version}"):
            command = ("git", "show", f"v{version}:CHANGELOG.md")
            tagged = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
            assert section_of(now, version) == section_of(tagged, version)


def test_connectors_report_the_version_of_the_package_or_of_kafka() -> None:
    found = {plugin.cls: plugin.version for plugin in Plugins().describe() if plugin.type in ("source", "sink")}
    assert len(found) > 10
    assert set(found.values()) == {connectx.__version__, "4.3.0"}
