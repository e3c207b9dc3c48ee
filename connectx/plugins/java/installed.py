"""Installs Java plugins into the user's cache, lists and removes them.

A plugin is a folder with a lock file (`connectx.plugins.java.lock`). One whose files differ from it is not used.
Workers without `plugin.path` use all that are installed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock

from connectx.errors.machine import DiskFullError
from connectx.errors.plugins import PluginInstallError
from connectx.jvm.cache import cache_dir, is_disk_full
from connectx.jvm.java import find_java
from connectx.jvm.maven import Coordinates, download
from connectx.jvm.progress import Progress, shown, step
from connectx.model.decoding import Unreadable, WrongShape
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.java.archives import is_tar, unpack
from connectx.plugins.java.contents import guarded
from connectx.plugins.java.finder import find_in
from connectx.plugins.java.locations import files_of, is_archive
from connectx.plugins.java.lock import LOCK_FILE, change_of, read_lock, write_lock
from connectx.plugins.java.plugin import JavaPlugin, Refusal
from connectx.values import Value
from connectx.views import Form, Listed, Row, Shown

PROVIDED: Final = (
    *(("org.apache.kafka", name) for name in ("connect-api", "connect-runtime", "kafka-clients")),
    *(
        (group, "*")
        for group in ("org.slf4j", "org.apache.logging.log4j", "ch.qos.logback", "ch.qos.reload4j", "log4j")
    ),
)
"""Groups and artifacts of Maven that Kafka Connect's own class path provides to plugins."""

_PLUGIN_ARCHIVES: Final = (("plugin", "tar.gz"), ("plugin", "zip"))
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._+-]+")


class InstalledPlugin(Value, Shown):
    """An installed Java plugin.

    Attributes:
        name: of its folder.
        source: what it was installed from: Maven coordinates, or a file or folder.
        folder: where it is.
        plugins: its classes; none if it is not used.
        problem: why it is not used, None if it is.
    """

    name: str
    source: str
    folder: Path
    plugins: tuple[JavaPlugin, ...]
    problem: str | None = None

    def row(self) -> Row:
        """One line of a table."""
        connectors = [plugin.class_name for plugin in self.plugins if plugin.kind.is_connector]
        others = len(self.plugins) - len(connectors)
        return {
            "name": self.name,
            "from": self.source,
            "connectors": ", ".join(connectors),
            "others": others,
            "state": "installed" if self.problem is None else f"not used: {self.problem}",
        }

    def _shown(self) -> Form:
        return Form("Installed Java plugin", self.row())


def plugin_path(config: WorkerConfig) -> list[Path]:
    """Folders of a worker's Java plugins: its `plugin.path`, otherwise those that were installed."""
    if config.plugin_path is not None:
        return [Path(entry) for entry in config.plugin_path if entry]
    folder = installed_folder()
    return [folder] if folder.is_dir() else []


def installed_folder() -> Path:
    """Where `connectx plugins install` puts a folder per plugin."""
    return cache_dir() / "plugins"


def installed() -> Listed[InstalledPlugin]:
    """Return the installed Java plugins by name, each compared with its lock file."""
    folder = installed_folder()
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    found = (_described(folder / name) for name in names if (folder / name).is_dir())
    return Listed(found, "installed Java plugins")


def install(source: str | Path, *, progress: Progress | None = None) -> InstalledPlugin:
    """Install a Java plugin for new workers.

    Args:
        source: `group:artifact:version` in Maven Central, or a folder, jar, zip or tar.gz with a plugin.
        progress: shows the steps; by default bars or lines where that is possible.

    Returns:
        The plugin; the installed one if it is the same.

    Raises:
        PluginInstallError: there is no plugin in it, it is refused, or another one of its name is installed.
        NoJavaError, MissingExtraError: Maven's artifacts need Java and pyspark's Ivy.
        NoNetworkError, JarDownloadError, DiskFullError: it cannot be fetched.
    """
    given = str(source).strip()
    path = Path(given).expanduser()
    exists = bool(given) and path.exists()
    coordinates = None if exists else Coordinates.of(given)
    if coordinates is None and not exists:
        raise PluginInstallError(
            given, "it is neither group:artifact:version nor a file or folder that exists", "Correct it."
        )
    with _staging() as staging, shown(progress) as show:
        content = staging / "content"
        content.mkdir()
        try:
            if coordinates is not None:
                _fetch(coordinates, content, staging, show)
                name = f"{coordinates.artifact}-{coordinates.version}"
            else:
                with step(show, f"Copying {path.name}"):
                    _take(path, content)
                name = _name_of(path)
            with step(show, "Looking for plugins"):
                return _adopt(content, name, given if coordinates is not None else str(path.absolute()))
        except WrongShape as error:
            raise PluginInstallError(
                given, str(error), "Get it again, or unpack it yourself and name the folder."
            ) from error
        except OSError as error:
            if is_disk_full(error):
                raise DiskFullError(staging, "CONNECTX_CACHE_DIR", str(error)) from error
            raise PluginInstallError(
                given, f"{error.strerror} ({error.filename})", "Correct it and try again."
            ) from error


def remove(name: str) -> None:
    """Remove an installed Java plugin. Workers that run keep what they have loaded.

    Raises:
        PluginInstallError: none of this name is installed.
    """
    known = [plugin.name for plugin in installed()]
    if name not in known:
        listed = ", ".join(known) or "none"
        raise PluginInstallError(name, f"no plugin of this name is installed ({listed} installed)", "Correct the name.")
    with _staging() as staging:
        os.rename(installed_folder() / name, staging / "removed")


@contextmanager
def _staging() -> Iterator[Path]:
    """A folder beside the installed plugins, for one program at a time; what one that died left there is removed."""
    parent = cache_dir() / "plugins-staging"
    parent.mkdir(parents=True, exist_ok=True)
    with FileLock(cache_dir() / "plugins.lock"):
        for left_over in parent.iterdir():
            shutil.rmtree(left_over, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(dir=parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _fetch(wanted: Coordinates, content: Path, staging: Path, show: Progress) -> None:
    java = find_java()
    for number, archive in enumerate(_PLUGIN_ARCHIVES):
        files = download(wanted, java, staging / f"ivy-{number}", show, archive=archive)
        if files:
            _unpack(files[0], content)
            return
    files = download(wanted, java, staging / "ivy-jars", show, without=PROVIDED)
    jars = [file for file in files if is_archive(file)]
    if not jars:
        raise PluginInstallError(
            str(wanted),
            "the Maven repository does not have it",
            "Correct it, set CONNECTX_MAVEN_REPOSITORY to a repository that has it, or download the plugin and install "
            "the file.",
        )
    for file in jars:
        shutil.copyfile(file, content / file.name)


def _take(path: Path, content: Path) -> None:
    """Copy jars of a folder, a jar, or what is in an archive."""
    if path.is_dir():
        refusals: list[Refusal] = []
        for file in files_of(path, refusals.append):
            if file == path:
                shutil.copytree(file, content, dirs_exist_ok=True, ignore=shutil.ignore_patterns(LOCK_FILE))
            else:
                _copy(file, content / file.relative_to(path))
        if refusals:
            raise WrongShape(f"{refusals[0]}")
    elif is_tar(path) or (path.name.lower().endswith(".zip") and _holds_jars(path)):
        _unpack(path, content)
    else:
        _copy(path, content / path.name)


def _copy(file: Path, target: Path) -> None:
    if not file.is_file():
        raise WrongShape(f"{file.name} is no regular file")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)


def _unpack(archive: Path, content: Path) -> None:
    """Unpack an archive; without the folder that all of its files are in."""
    unpacked = content.parent / "unpacked"
    unpack(archive, unpacked)
    entries = list(unpacked.iterdir()) if unpacked.is_dir() else []
    root = entries[0] if len(entries) == 1 and entries[0].is_dir() else unpacked
    if root.is_dir():
        shutil.rmtree(content)
        os.rename(root, content)
    (content / LOCK_FILE).unlink(missing_ok=True)


def _holds_jars(path: Path) -> bool:
    with guarded(), zipfile.ZipFile(path) as archive:
        return any(name.lower().endswith(".jar") for name in archive.namelist())


def _name_of(path: Path) -> str:
    name = path.absolute().name
    for suffix in (".tar.gz", ".tgz", ".tar", ".zip", ".jar"):
        if name.lower().endswith(suffix) and not path.is_dir():
            name = name[: -len(suffix)]
            break
    return _NOT_IN_NAMES.sub("-", name).strip(".-") or "plugin"


def _adopt(content: Path, name: str, source: str) -> InstalledPlugin:
    lock = write_lock(content, source)
    target = installed_folder() / name
    if target.exists():
        there = read_lock(target)
        if isinstance(there, Unreadable) or there is None or there.files != lock.files or change_of(target):
            raise PluginInstallError(
                source,
                f"another plugin of the name {name} is installed, or its files have changed",
                f"Run connectx plugins remove {name}, then install it.",
            )
        return _described(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.rename(content, target)  # before it is searched: what is found is kept by the place
    found = find_in(target)
    if not found.plugins:
        os.rename(target, content)
        reason = f"no Java plugin is in it ({found.refusals[0]})" if found.refusals else "no Java plugin is in it"
        raise PluginInstallError(source, reason, "Name a connector, converter or transformation of Kafka Connect.")
    return _described(target)


def _described(folder: Path) -> InstalledPlugin:
    lock = read_lock(folder)
    if lock is None:
        return InstalledPlugin(folder.name, "unknown", folder, find_in(folder).plugins)
    source = "unknown" if isinstance(lock, Unreadable) else lock.source
    problem = change_of(folder)
    return InstalledPlugin(folder.name, source, folder, () if problem else find_in(folder).plugins, problem)
