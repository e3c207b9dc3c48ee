"""Fetches the jars of Apache Kafka and of Kafka Connect once per user, through pyspark's Ivy.

`jars.lock.json` names every jar with its size and SHA-256; nothing that differs is ever used. A set of jars is
fetched into a separate folder, verified, then moved into place as a whole, so that what has its final name is
complete. Processes that want the same set at the same time wait for one of them. Never
resolves versions: the lock does.

`CONNECTX_MAVEN_REPOSITORY` names another Maven repository than Ivy's default; `HTTPS_PROXY`, `HTTP_PROXY` and
`NO_PROXY` are handed to Java, `JAVA_TOOL_OPTIONS` is Java's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from filelock import FileLock

from connectx.errors.machine import ChecksumError, DiskFullError, JarDownloadError, NoNetworkError
from connectx.extras import require
from connectx.jvm.cache import cache_dir, is_disk_full, reports_disk_full, require_free
from connectx.jvm.java import JavaHome
from connectx.jvm.progress import Progress, silent
from connectx.jvm.trust import trust_options

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


def spark_jars_dir() -> Path:
    """The jars that pyspark carries, found without importing pyspark."""
    require("The Ivy that fetches jars", "embedded", "pyspark")
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None, "pyspark is a package with files"
    return Path(spec.origin).parent / "jars"


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


def is_reason(line: str) -> bool:
    """Whether a line of Ivy's output has the cause of a failure."""
    return any(word in line for word in ("ERROR", "WARN: Host", "[FAILED "))


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
    command = _ivy_command(locked(name), java, partial)
    total, done, reason = len(locked(name)), 0, ""
    label = f"Fetching {name} jars"
    progress(label, 0, total)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ivy_run:
        assert ivy_run.stdout is not None
        try:
            for line in ivy_run.stdout:
                if "[SUCCESSFUL ]" in line:
                    done += 1
                    progress(label, done, total)
                elif is_reason(line):
                    reason = line.strip().removeprefix("WARN:").removeprefix("ERROR:").strip()
                if "[FAILED " in line or _NOT_THERE in line:
                    break  # one jar that is missing is enough; do not wait for the others to time out
        finally:
            if done != total:  # also after an interrupt, which ends only this process
                ivy_run.kill()
    if ivy_run.returncode != 0 or done != total:
        raise _download_error(name, partial, reason)


def _download_error(name: str, partial: Path, reason: str) -> Exception:
    if reports_disk_full(reason):
        return DiskFullError(partial.parent, "CONNECTX_CACHE_DIR", reason)
    if "Server access error" in reason or reason.startswith("Host "):
        return NoNetworkError(name, reason)
    return JarDownloadError(
        f"A jar of {name} could not be fetched from the Maven repository: {reason or 'Ivy gives no reason'}.",
        next_step="Try again, or set CONNECTX_MAVEN_REPOSITORY to a repository that mirrors Maven Central.",
    )


def ivy_settings(*, poms: bool, checksums: str) -> str:
    """Settings of Ivy: the repository, whether it reads dependencies, and which checksums of files it compares."""
    repository = os.environ.get("CONNECTX_MAVEN_REPOSITORY")
    root = f" root={quoteattr(repository)}" if repository else ""
    return (
        '<ivysettings><settings defaultResolver="maven"/>'
        f'<property name="ivy.checksums" value="{checksums}" override="true"/>'
        f'<resolvers><ibiblio name="maven" m2compatible="true" usepoms="{str(poms).lower()}"{root}/></resolvers>'
        "</ivysettings>"
    )


def _ivy_command(wanted: Sequence[Jar], java: JavaHome, folder: Path) -> list[str]:
    """Ivy to put these jars into the folder `jars`; the lock file has their checksums."""
    return ivy_command(ivy_settings(poms=False, checksums=""), _ivy_module(wanted), _RETRIEVE_PATTERN, java, folder)


def ivy_command(settings: str, module: str, pattern: str, java: JavaHome, folder: Path) -> list[str]:
    """Ivy with its files in `folder`, to put what `module` depends on into its folder `jars`."""
    (folder / "settings.xml").write_text(settings)
    (folder / "ivy.xml").write_text(module)
    ivy = sorted(spark_jars_dir().glob("ivy-*.jar"))[-1]
    return [
        str(java.java),
        *proxy_options(os.environ),
        *trust_options(java, folder),
        f"-Divy.default.ivy.user.dir={folder / 'user'}",
        "-jar",
        str(ivy),
        "-verbose",
        "-settings",
        str(folder / "settings.xml"),
        "-cache",
        str(folder / "cache"),
        "-ivy",
        str(folder / "ivy.xml"),
        "-confs",
        "default",
        "-retrieve",
        str(folder / "jars" / pattern),
    ]


def _ivy_module(wanted: Sequence[Jar]) -> str:
    dependencies = "".join(
        f'<dependency org="{jar.organisation}" name="{jar.module}" rev="{jar.revision}" transitive="false"/>'
        for jar in wanted
    )
    return (
        '<ivy-module version="2.0"><info organisation="connectx" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f'<dependencies defaultconfmapping="default->default">{dependencies}</dependencies></ivy-module>'
    )


def proxy_options(env: Mapping[str, str]) -> list[str]:
    """Java's proxy settings for the conventional environment variables; Java itself does not read those."""
    options = []
    for scheme in ("https", "http"):
        value = env.get(f"{scheme}_proxy") or env.get(f"{scheme.upper()}_PROXY")
        if value:
            url = urlsplit(value if "//" in value else f"//{value}")
            options += [f"-D{scheme}.proxyHost={url.hostname}", f"-D{scheme}.proxyPort={url.port or 80}"]
    if options and (direct := env.get("no_proxy") or env.get("NO_PROXY")):
        hosts = [f"*{host}" if host.startswith(".") else host for host in direct.split(",")]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(host.strip() for host in hosts)}")
    return options
