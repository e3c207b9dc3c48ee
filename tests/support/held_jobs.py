"""A transformation that keeps Spark's executors busy until a test lets them continue."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.transforms.api import Transform
from connectx.model.configdef import ConfigDef


class Hold(Transform):
    """In other processes than that of the test: leaves its process id in a folder, and waits for a file `go` there.

    Records before the offset `after` pass.
    """

    config: ClassVar[ConfigDef] = ConfigDef().define("folder", str).define("pid", int).define("after", int)
    reads: ClassVar[tuple[str, ...]] = ()

    def apply(self, records: pa.Table) -> pa.Table:
        """All records, in the end."""
        folder = Path(self.settings["folder"])
        is_late = bool(pc.any(pc.greater_equal(records["offset"], self.settings["after"])).as_py())
        if os.getpid() != self.settings["pid"] and is_late:
            (folder / f"{os.getpid()}.pid").touch()
            while not (folder / "go").exists():
                time.sleep(0.02)
        return records


def held(folder: Path, after: int = 0) -> dict[str, str]:
    """Settings of a connector whose jobs wait."""
    cls = f"{Hold.__module__}.{Hold.__qualname__}"
    settings = {"type": cls, "folder": str(folder), "pid": str(os.getpid()), "after": str(after)}
    return {"transforms": "hold", **{f"transforms.hold.{name}": text for name, text in settings.items()}}


def holding(folder: Path) -> list[int]:
    """Processes that wait or have waited."""
    return [int(path.stem) for path in folder.glob("*.pid")]
