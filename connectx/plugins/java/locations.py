"""Divides a plugin path into locations, and a location into its jars.

A folder of the path holds a location per plugin: a folder with jars (at any depth) or with classes, or one jar or zip.
The path may also name a jar itself. Symbolic links are followed, each target once. Mirrors Kafka Connect's
PluginUtils.pluginLocations and pluginUrls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from connectx.plugins.java.plugin import Refusal

Refuse = Callable[[Refusal], None]

MOST_FILES: Final = 100_000
"""Files of one location, so that a folder that was named by mistake is not read."""

_ARCHIVES: Final = (".jar", ".zip")
_CLASS: Final = ".class"


def locations(plugin_path: Iterable[Path | str], refuse: Refuse) -> Iterator[Path]:
    """Locations of plugins in the order of the path, sorted inside each of its folders."""
    seen = set[str]()
    for entry in (Path(given) for given in plugin_path if str(given)):
        for location in _children(entry, refuse) if not is_archive(entry) or entry.is_dir() else [entry]:
            try:
                exists = os.path.exists(location)
            except ValueError:  # a zero byte in the name
                exists = False
            if not exists:
                refuse(
                    Refusal(location, "it does not exist" if not location.is_symlink() else "its link leads nowhere")
                )
            elif (real := os.path.realpath(location)) not in seen:
                seen.add(real)
                yield location


def files_of(location: Path, refuse: Refuse) -> list[Path]:
    """Jars of a location, sorted; the location itself if it is a jar, or a folder of classes without jars."""
    if not location.is_dir():
        return [location]
    archives, has_classes, waiting, seen = set[Path](), False, [location], {os.path.realpath(location)}
    count = 0
    while waiting:
        folder = waiting.pop()
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            refuse(Refusal(folder, f"it cannot be listed ({error.strerror})"))
            continue
        count += len(names)
        if count > MOST_FILES:
            refuse(Refusal(location, f"it has more than {MOST_FILES:,} files, so it is no folder of a plugin"))
            return []
        for path in (folder / name for name in names):
            real = os.path.realpath(path)
            if real in seen:
                continue
            seen.add(real)
            if os.path.isdir(real):
                waiting.append(path)
            elif is_archive(path):
                if os.path.exists(real):
                    archives.add(path)
                else:
                    refuse(Refusal(path, "its link leads nowhere"))
            elif path.name.endswith(_CLASS):
                has_classes = True
    if archives and has_classes:
        refuse(Refusal(location, "it has jars and class files, of which only the jars are used"))
    return sorted(archives) or ([location] if has_classes else [])


def is_archive(path: Path) -> bool:
    """Whether a file is taken for a jar, by its name."""
    return path.name.lower().endswith(_ARCHIVES)


def _children(entry: Path, refuse: Refuse) -> list[Path]:
    try:
        names = sorted(os.listdir(entry))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        refuse(Refusal(entry, f"it is no folder that can be listed ({reason})"))
        return []
    if len(names) > MOST_FILES:
        refuse(Refusal(entry, f"it has more than {MOST_FILES:,} files, so it is no folder of plugins"))
        return []
    paths = [entry / name for name in names]
    return [path for path in paths if is_archive(path) or path.is_dir() or (path.is_symlink() and not path.exists())]
