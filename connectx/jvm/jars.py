"""Fetches the jars of Apache Kafka and of Kafka Connect once per user, through pyspark's Ivy.

`jars.lock.json` names every jar with its size and SHA-256; nothing that differs is ever used. A set of jars is
fetched into a separate folder, verified, then moved into place as a whole, so that what has its final name is
complete. Processes that want the same set at the same time wait for one of them. Never
resolves versions: the lock does.

`connectx.jvm.ivy` names the environment variables that apply.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from filelock import FileLock

from connectx.errors.machine import ChecksumError, DiskFullError
from connectx.jvm.cache import cache_dir, is_disk_full, require_free
from connectx.jvm.ivy import ARRIVED, is_reason, ivy_command, running, spark_jars_dir
from connectx.jvm.java import JavaHome
from connectx.jvm.progress import Progress, silent

KAFKA = "kafka"
KAFKA_CONNECT = "kafka-connect"

_NOT_THERE = "no ivy file nor artifact found"
_RETRIEVE_PATTERN = "[artifact]-[revision].[ext]"


@dataclass(frozen=True)
class Jar:
    organisation: str
    module: str
    revision: str
    size_bytes: int
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.module}-{self.revision}.jar"


@cache
def locked(name: str) -> tuple[Jar, ...]:
    """The jars of set `name` (KAFKA or KAFKA_CONNECT) as the lock file has them."""
    lock = json.loads(files("connectx.jvm").joinpath("jars.lock.json").read_text())
    return tuple(Jar(**entry) for entry in lock[name])


def spark_version() -> str:
    """Version of the installed pyspark's Spark, by the name of its core jar; empty when it has no jars."""
    return next((jar.stem.rpartition("-")[2] for jar in spark_jars_dir().glob("spark-core_*.jar")), "")


def fetched(name: str) -> list[Path] | None:
    """The files of set `name` when all are in the cache with the right size, otherwise None. Reads no contents."""
    folder = _folder(name)
    paths = [folder / jar.file for jar in locked(name)]
    for path, jar in zip(paths, locked(name), strict=True):
        try:
            if path.stat().st_size != jar.size_bytes:
                return None
        except OSError:
            return None
    return paths


def fetch(name: str, java: JavaHome, progress: Progress = silent) -> list[Path]:
    """Return the files of set `name`, fetching them when this user has none.

    Args:
        name: KAFKA or KAFKA_CONNECT.
        java: what Ivy runs on.
        progress: shows each jar that arrives.

    Raises:
        MissingExtraError: pyspark, whose Ivy fetches them, is not installed.
        NoNetworkError: the repository cannot be reached.
        JarDownloadError: it answers, but does not have a jar.
        ChecksumError: a jar is not the one in the lock file.
        DiskFullError: no room for the jars in the cache.
    """
    if present := fetched(name):
        return present
    folder = _folder(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f"{name}.lock"):
        if present := fetched(name):
            return present
        needed_bytes = 3 * sum(jar.size_bytes for jar in locked(name))
        require_free(folder.parent, needed_bytes, "CONNECTX_CACHE_DIR")
        for left_over in folder.parent.glob(f"{name}.partial-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{name}.partial-", dir=folder.parent))
        try:
            _retrieve(name, java, partial, progress)
            verify(name, partial / "jars")
            shutil.rmtree(folder, ignore_errors=True)
            (partial / "jars").rename(folder)
        except OSError as error:
            if is_disk_full(error):
                raise DiskFullError(folder.parent, "CONNECTX_CACHE_DIR", str(error)) from error
            raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return [folder / jar.file for jar in locked(name)]


def why_not_fetchable(name: str, java: JavaHome, timeout_s: float) -> str | None:
    """Try to fetch the smallest jar of set `name` and throw it away; None when that works, otherwise why not."""
    smallest = min(locked(name), key=lambda jar: jar.size_bytes)
    with tempfile.TemporaryDirectory(prefix="connectx-probe-") as folder:
        command = _ivy_command([smallest], java, Path(folder))
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {timeout_s:g} s"
        if done.returncode == 0 and (Path(folder) / "jars" / smallest.file).exists():
            return None
        reasons = [line.strip() for line in done.stdout.splitlines() if is_reason(line) or _NOT_THERE in line]
        return reasons[-1] if reasons else "Ivy gives no reason"


def verify(name: str, folder: Path) -> None:
    """Raise ChecksumError unless `folder` holds every jar of set `name` with the SHA-256 of the lock file."""
    for jar in locked(name):
        path = folder / jar.file
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != jar.sha256:
            raise ChecksumError(jar.file, expected=jar.sha256, found=digest)


def _folder(name: str) -> Path:
    """A new lock file means a new folder, so that an upgrade never mixes sets."""
    content = "".join(jar.sha256 for jar in locked(name))
    return cache_dir() / "jars" / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def _retrieve(name: str, java: JavaHome, partial: Path, progress: Progress) -> None:
    """Run Ivy; a failure is raised as one error with its reason."""
    total, done, label = len(locked(name)), 0, f"Fetching {name} jars"
    progress(label, 0, total)
    with running(_ivy_command(locked(name), java, partial)) as ivy:
        for line in ivy.lines():
            if ARRIVED in line:
                done += 1
                progress(label, done, total)
            if "[FAILED " in line or _NOT_THERE in line:
                ivy.kill()  # one jar that is missing is enough; do not wait for the others to time out
                break
    if not ivy.succeeded or done != total:
        raise ivy.error(name, partial.parent, f"A jar of {name} could not be fetched from the Maven repository")


def _ivy_command(wanted: Sequence[Jar], java: JavaHome, folder: Path) -> list[str]:
    """Ivy to put these jars into the folder `jars`; the lock file has their checksums."""
    dependencies = (
        f'<dependency org="{jar.organisation}" name="{jar.module}" rev="{jar.revision}" transitive="false"/>'
        for jar in wanted
    )
    return ivy_command(dependencies, java, folder, pattern=_RETRIEVE_PATTERN, poms=False, checksums="")
