"""Downloads an artifact of a Maven repository that the user names, through pyspark's Ivy.

An artifact is taken with its dependencies, or as one file with a classifier. Ivy compares each file with the SHA-1 of
the repository. Decides nothing about what the files are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from connectx.jvm.ivy import ARRIVED, ivy_command, running
from connectx.jvm.java import JavaHome
from connectx.jvm.progress import Progress, silent
from connectx.values import Value

_PATTERN: Final = "[artifact]-[revision](-[classifier]).[ext]"
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_MISSING: Final = ("[NOT FOUND ", ": not found")
_POM: Final = "(pom.original)"


class Coordinates(Value):
    """Group, artifact and version of Maven."""

    group: str
    artifact: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @classmethod
    def of(cls, text: str) -> Coordinates | None:
        """Read `group:artifact:version`; None for other text, and for ranges, which a lock could not hold."""
        parts = text.strip().split(":")
        return cls(*parts) if len(parts) == 3 and all(map(_PART.fullmatch, parts)) else None


def download(
    wanted: Coordinates,
    java: JavaHome,
    folder: Path,
    progress: Progress = silent,
    *,
    archive: tuple[str, str] | None = None,
    without: Sequence[tuple[str, str]] = (),
) -> list[Path]:
    """Download an artifact into a folder, which is empty.

    Args:
        wanted: the artifact.
        java: what Ivy runs on.
        folder: for Ivy's files, and the results.
        progress: shows each file that arrives.
        archive: classifier and extension of the one file to take; without it the jar and its dependencies.
        without: groups and artifacts that are left out of the dependencies; `*` is each artifact of a group.

    Returns:
        The files; none if the repository has no such artifact.

    Raises:
        NoNetworkError: the repository cannot be reached.
        JarDownloadError: a file that it should have cannot be fetched, or differs from its checksum.
        DiskFullError: no room.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = ivy_command(
        [_dependency(wanted, archive, without)], java, folder, pattern=_PATTERN, poms=True, checksums="sha1,md5"
    )
    label = f"Fetching {wanted.artifact} {wanted.version}" + (f" as {archive[1]}" if archive else "")
    named = f"{wanted.group}#{wanted.artifact};{wanted.version}"
    done, missing = 0, False
    progress(label, 0, 0)
    with running(command) as ivy:
        for line in ivy.lines():
            if ARRIVED in line and _POM not in line:
                done += 1
                progress(label, done, 0)
            missing = missing or (named in line and any(word in line for word in _MISSING))
    progress(label, max(done, 1), max(done, 1))
    files = sorted((folder / "jars").glob("*")) if (folder / "jars").is_dir() else []
    if ivy.succeeded and files:
        return files
    if missing and not done and not ivy.is_unreachable:
        return []
    raise ivy.error(str(wanted), folder, f"{wanted} could not be fetched whole from the Maven repository")


def _dependency(wanted: Coordinates, archive: tuple[str, str] | None, without: Sequence[tuple[str, str]]) -> str:
    content = "".join(f"<exclude org={quoteattr(group)} module={quoteattr(name)}/>" for group, name in without)
    if archive is not None:
        classifier, ext = map(quoteattr, archive)
        name = quoteattr(wanted.artifact)
        content = f"<artifact name={name} type={ext} ext={ext} m:classifier={classifier}/>"
    return (
        f"<dependency org={quoteattr(wanted.group)} name={quoteattr(wanted.artifact)} rev={quoteattr(wanted.version)} "
        f'transitive="{str(archive is None).lower()}">{content}</dependency>'
    )
