"""A package of another author with a source and a sink, installed as a wheel in an environment over this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SAMPLE = Path(__file__).parent
UV = Path(sys.executable).with_name("uv")
ENTRY_POINTS = """
[connectx.connectors]
shelf-source = acme_shelf:ShelfSource
shelf-sink = acme_shelf:ShelfSink
far-shelf-sink = acme_shelf:FarShelfSink
"""


def built(folder: Path) -> Path:
    """The wheel of the sample, which needs no build system: it is one module."""
    wheel = folder / "acme_shelf-7.1-py3-none-any.whl"
    info = "acme_shelf-7.1.dist-info"
    files = {
        "acme_shelf.py": (SAMPLE / "acme_shelf.py").read_text(encoding="utf-8"),
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: acme-shelf\nVersion: 7.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": ENTRY_POINTS,
    }
    with zipfile.ZipFile(wheel, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
        packed.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return wheel


def installed(folder: Path) -> Path:
    """The interpreter of an environment that has the package."""
    env = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    purelib = sysconfig.get_path("purelib", vars={"base": str(env), "platbase": str(env)})
    below = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    Path(purelib, "under.pth").write_text(below, encoding="utf-8")
    python = env / "bin" / "python"
    install: list[str | Path] = [UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python]
    subprocess.run([*install, built(folder)], check=True)
    return python


def answers(python: Path, script: str, *arguments: str | Path) -> dict[str, Any]:
    """What a script of this package prints as JSON on its last line."""
    ran = subprocess.run(
        [python, SAMPLE / script, *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'widgets'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found
