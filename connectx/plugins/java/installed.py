"""The folder of installed Java plugins in the user's cache."""

from __future__ import annotations

from pathlib import Path

from connectx.jvm.cache import cache_dir
from connectx.model.worker_config import WorkerConfig


def installed_folder() -> Path:
    """Where `connectx plugins install` puts a folder per plugin."""
    return cache_dir() / "plugins"


def plugin_path(config: WorkerConfig) -> list[Path]:
    """Folders of a worker's Java plugins: its `plugin.path`, otherwise those that were installed."""
    if config.plugin_path is not None:
        return [Path(entry) for entry in config.plugin_path if entry]
    folder = installed_folder()
    return [folder] if folder.is_dir() else []
