"""Executors that are processes below this one are found by their command, and killed with their own children."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from connectx.errors.spark import NoExecutorError
from connectx.spark.executors import executors, kill

CLASS = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
"""


def test_an_executor_is_killed_with_its_children() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CLASS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        (found,) = executors()
        assert found.pid == process.pid
        kill(found)
        assert not found.is_running()
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE  # of the init process
    with pytest.raises(NoExecutorError, match="Spark has no executor as a child process here"):
        executors()
