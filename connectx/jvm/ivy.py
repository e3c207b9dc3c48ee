"""Runs pyspark's Ivy, which downloads files from a Maven repository.

`CONNECTX_MAVEN_REPOSITORY` names another repository than Ivy's default; `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` are
handed to Java, `JAVA_TOOL_OPTIONS` is Java's own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from connectx.errors.machine import DiskFullError, JarDownloadError, NoNetworkError
from connectx.extras import require
from connectx.jvm.cache import reports_disk_full
from connectx.jvm.java import JavaHome
from connectx.jvm.trust import trust_options

ARRIVED: Final = "[SUCCESSFUL ]"
"""In Ivy's line about a file that was downloaded."""


def spark_jars_dir() -> Path:
    """The jars that pyspark carries, found without importing pyspark."""
    require("The Ivy that fetches jars", "embedded", "pyspark")
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None, "pyspark is a package with files"
    return Path(spec.origin).parent / "jars"


def ivy_command(
    dependencies: Iterable[str], java: JavaHome, folder: Path, *, pattern: str, poms: bool, checksums: str
) -> list[str]:
    """Ivy with its files in `folder`, to put files into its folder `jars`.

    Args:
        dependencies: elements `dependency` of an Ivy file.
        java: what Ivy runs on.
        folder: for Ivy's files, and the folder `jars`.
        pattern: Ivy's pattern of the names of files.
        poms: whether the POMs are read, which name the dependencies of dependencies.
        checksums: kinds of checksums in the repository that files are compared with, separated by commas.
    """
    repository = os.environ.get("CONNECTX_MAVEN_REPOSITORY")
    root = f" root={quoteattr(repository)}" if repository else ""
    (folder / "settings.xml").write_text(
        '<ivysettings><settings defaultResolver="maven"/>'
        f'<property name="ivy.checksums" value="{checksums}" override="true"/>'
        f'<resolvers><ibiblio name="maven" m2compatible="true" usepoms="{str(poms).lower()}"{root}/></resolvers>'
        "</ivysettings>"
    )
    (folder / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="connectx" module="jars"/><configurations><conf name="default"/></configurations>'
        f'<dependencies defaultconfmapping="default->default">{"".join(dependencies)}</dependencies></ivy-module>'
    )
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


class IvyRun:
    """A run of Ivy. `reason`: the last cause of a failure in the lines that were read."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.reason = ""

    def lines(self) -> Iterator[str]:
        """What it prints, as it comes."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if is_reason(line):
                self.reason = line.strip().removeprefix("WARN:").removeprefix("ERROR:").strip()
            yield line

    def kill(self) -> None:
        """End it."""
        self._process.kill()

    @property
    def succeeded(self) -> bool:
        """Whether Ivy ended without an error. Valid after the `with` block."""
        return self._process.returncode == 0

    def error(self, what: str, folder: Path, problem: str) -> DiskFullError | NoNetworkError | JarDownloadError:
        """The error of a run that failed.

        Args:
            what: what was to be downloaded.
            folder: where it was to be.
            problem: sentence about it without its cause and full stop.
        """
        if reports_disk_full(self.reason):
            return DiskFullError(folder, "CONNECTX_CACHE_DIR", self.reason)
        if self.is_unreachable:
            return NoNetworkError(what, self.reason)
        return JarDownloadError(
            f"{problem}: {self.reason or 'Ivy gives no reason'}.",
            next_step="Try again, or set CONNECTX_MAVEN_REPOSITORY to a repository that mirrors Maven Central.",
        )

    @property
    def is_unreachable(self) -> bool:
        """Whether the repository could not be reached."""
        return "Server access error" in self.reason or self.reason.startswith("Host ")


@contextmanager
def running(command: Sequence[str]) -> Iterator[IvyRun]:
    """Run Ivy; an exception in the block, such as an interrupt, ends it."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        run = IvyRun(process)
        try:
            yield run
        except BaseException:
            run.kill()
            raise


def is_reason(line: str) -> bool:
    """Whether a line of Ivy's output has the cause of a failure."""
    return any(word in line for word in ("ERROR", "WARN: Host", "[FAILED "))


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
