"""Keeps what the finder has found in a location, until one of its files changes.

A file per location in the user's cache. One that is missing, damaged or cannot be written costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from connectx.jvm.cache import cache_dir
from connectx.model.decoding import Unreadable, decoder
from connectx.plugins.java.plugin import Found, JavaPlugin, PluginKind, Refusal
from connectx.version import VERSION

_FORMAT: Final = 1
_MOST_BYTES: Final = 16 << 20


def fingerprint(location: Path, files: Sequence[Path], mode: str) -> str:
    """Digest of names, sizes and times of all files of a location, and of who reads them."""
    digest = hashlib.sha256(f"{_FORMAT} {VERSION} {mode} {location}".encode(errors="surrogateescape"))
    for file in files:
        parts = sorted(_all_files(file)) if file.is_dir() else [os.fspath(file)]
        for part in parts:
            try:
                stat = os.stat(part)
                text = f"\n{part} {stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"
            except OSError:
                text = f"\n{part} -"
            digest.update(text.encode(errors="surrogateescape"))
    return digest.hexdigest()


def read(location: Path, fingerprint_now: str) -> Found | None:
    """What was kept for a location with this fingerprint."""
    try:
        with _file(location).open("rb") as stream:
            data = stream.read(_MOST_BYTES)
    except OSError:
        return None
    kept = decoded_index(data, fingerprint_now)
    return None if isinstance(kept, Unreadable) else kept


def write(location: Path, fingerprint_now: str, found: Found) -> None:
    """Keep what was found."""
    content = {
        "fingerprint": fingerprint_now,
        "plugins": [
            [one.class_name, one.kind, one.version, os.fspath(one.location), one.in_manifest] for one in found.plugins
        ],
        "refusals": [[os.fspath(one.path), one.reason] for one in found.refusals],
        "locations": [os.fspath(one) for one in found.locations],
    }
    target = _file(location)
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=target.parent, suffix=".partial")
        try:
            with os.fdopen(handle, "w", encoding="ascii") as stream:
                json.dump(content, stream)
            os.replace(partial, target)
        except OSError:
            os.unlink(partial)
            raise


@decoder
def decoded_index(data: bytes, fingerprint_now: str) -> Found | None:
    """What the bytes of a file of the index hold; None if they are of other files than those of now."""
    content = json.loads(data)
    if content["fingerprint"] != fingerprint_now:
        return None
    return Found(
        tuple(
            JavaPlugin(str(name), PluginKind(kind), version, Path(path), bool(in_manifest))
            for name, kind, version, path, in_manifest in content["plugins"]
        ),
        tuple(Refusal(Path(path), str(reason)) for path, reason in content["refusals"]),
        tuple(Path(path) for path in content["locations"]),
    )


def _all_files(folder: Path) -> list[str]:
    return [os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names]


def _file(location: Path) -> Path:
    name = hashlib.sha256(os.path.abspath(location).encode(errors="surrogateescape")).hexdigest()[:24]
    return cache_dir() / "plugin-index" / f"{name}.json"
