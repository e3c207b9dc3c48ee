"""Executors of Spark that are child processes of this one: those of local-cluster[...]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectx.errors.spark import NoExecutorError

if TYPE_CHECKING:
    import psutil

_CLASS: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def executors() -> list[psutil.Process]:
    """The JVMs of executors, the oldest first.

    Raises:
        NoExecutorError: there are none; executors are threads of the driver, or run elsewhere.
    """
    import psutil

    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if _CLASS in process.cmdline():
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    if not found:
        raise NoExecutorError()
    return sorted(found, key=lambda process: float(process.create_time()))


def kill(executor: psutil.Process) -> None:
    """SIGKILL an executor and the Python processes of its tasks, and wait for their ends."""
    import psutil

    family = [executor, *executor.children(recursive=True)]
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family)
