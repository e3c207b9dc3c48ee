"""The file of FileStreamSource and FileStreamSink: neither uses the standard streams of a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def unnamed_file(config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
    """The problem of a configuration without a file, as `validate` returns it."""
    if (config.get("file") or "").strip():
        return {}
    return {"file": ["Invalid value null for configuration file: a file name is required"]}
