"""Probes of the notebook: its front end, whether its kernel shows widgets, and package versions.

It reads the environment, loaded modules and installed versions; it imports nothing and shows nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from enum import StrEnum

from connectx.jvm.progress import in_kernel
from connectx.verify.doctor.machine import version_of
from connectx.verify.doctor.report import Finding, Status

_PACKAGES = ("ipykernel", "ipywidgets", "anywidget", "pandas", "numpy", "pyarrow", "plotly", "jupyterlab")
_BAD_KERNEL = "7.0.0"


class FrontEnd(StrEnum):
    """Who shows what a cell returns."""

    DATABRICKS = "Databricks"
    COLAB = "Colab"
    VS_CODE = "VS Code"
    JUPYTER = "Jupyter"
    KERNEL = "an unknown front end of a Jupyter kernel"
    IPYTHON = "IPython in a terminal"
    TERMINAL = "no notebook"


def judge_front_end(env: Mapping[str, str], modules: Collection[str], *, shell: bool, kernel: bool) -> FrontEnd:
    """`modules` are names of loaded ones; `shell` whether IPython runs this, `kernel` whether for a front end."""
    if "DATABRICKS_RUNTIME_VERSION" in env:
        return FrontEnd.DATABRICKS
    if "COLAB_RELEASE_TAG" in env or "google.colab" in modules:
        return FrontEnd.COLAB
    if not kernel:
        return FrontEnd.IPYTHON if shell else FrontEnd.TERMINAL
    if any(name.startswith("VSCODE_") for name in env):
        return FrontEnd.VS_CODE
    if "JPY_SESSION_NAME" in env or "JPY_PARENT_PID" in env:
        return FrontEnd.JUPYTER
    return FrontEnd.KERNEL


def front_end() -> FrontEnd:
    shell = "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None
    return judge_front_end(os.environ, sys.modules, shell=shell, kernel=in_kernel())


def judge_session(front: FrontEnd, runtime: str) -> Finding:
    """`runtime` is Databricks' version, empty elsewhere."""
    found = f"{front.value} {runtime}".strip()
    if front is FrontEnd.DATABRICKS:
        why = "Widgets load their page code from a public network, which the browser must reach."
        return Finding("Front end", Status.OK, found, why)
    return Finding("Front end", Status.OK, found)


def session() -> Finding:
    """What shows results here."""
    return judge_session(front_end(), os.environ.get("DATABRICKS_RUNTIME_VERSION", ""))


def judge_packages(versions: Mapping[str, str | None]) -> Finding:
    """Versions of what notebooks need."""
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    if versions.get("pyarrow") is None:
        return Finding("Packages", Status.BROKEN, found, "Slices and checks need pyarrow.", "pip install pyarrow")
    if missing := [name for name in ("pandas", "plotly") if versions.get(name) is None]:
        why = f"Data frames and figures need {' and '.join(missing)}."
        return Finding("Packages", Status.LIMITED, found, why, "pip install 'connectx[notebook]'")
    return Finding("Packages", Status.OK, found)


def packages() -> Finding:
    return judge_packages({name: version_of(name) for name in _PACKAGES})


def judge_panel(front: FrontEnd, versions: Mapping[str, str | None]) -> Finding:
    """Whether `cluster` as the last line of a cell shows the live panel, and whether its clicks are served."""
    name, call = "Live panel", "cluster as the last line of a cell"
    if front in (FrontEnd.TERMINAL, FrontEnd.IPYTHON):
        why = "There is no notebook: the cluster shows itself as text."
        return Finding(name, Status.OFF, front.value, why, "print(cluster), or open a notebook: jupyter lab")
    missing = [package for package in ("ipywidgets", "anywidget") if versions.get(package) is None]
    if missing:
        why = "Without widgets the panel is a picture that does not move."
        next_step = "%pip install 'connectx[notebook]'"
        return Finding(name, Status.OFF, f"not installed: {', '.join(missing)}", why, next_step)
    kernel = versions.get("ipykernel") or ""
    if kernel == _BAD_KERNEL:
        why = "In ipykernel 7.0.0 updates from threads raise errors, so the panel stands still."
        return Finding(name, Status.LIMITED, call, why, "%pip install -U 'ipykernel!=7.0.0' and restart the kernel.")
    if kernel and int(kernel.partition(".")[0]) < 7:
        why = f"With ipykernel {kernel} clicks wait until the running cell ends; the panel shows a note."
        next_step = (
            "cluster.after(5).kill(...) acts while a cell runs; %pip install -U ipykernel, but not on Databricks."
        )
        return Finding(name, Status.LIMITED, call, why, next_step)
    return Finding(name, Status.OK, call)


def panel() -> Finding:
    return judge_panel(front_end(), {name: version_of(name) for name in _PACKAGES})
