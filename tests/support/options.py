"""Options of pytest for the Spark and the Kafka that tests use, and a report of the tests that they leave out.

By default everything is as `cx.Cluster()` has it: an embedded Kafka with its gate, a local Spark driver in this
process. `--spark=connect` gives every fixture a Spark Connect session of a server in another process, with no
SparkContext here; `--kafka=own` gives it a Kafka that no cluster started, without a gate: together, what Databricks'
standard clusters have. `--broker=4.4` starts brokers of that version.
"""

from __future__ import annotations

import gc
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from connectx.jvm import jars
from tests.support.other_kafka import VERSIONS, other_kafka
from tests.support.watchdog import watch

EMBEDDED: Final = "embedded"
LOCAL: Final = "local"
SEEDS: Final = 150
GATE: Final = pytest.mark.needs(EMBEDDED, "the gate, which cuts workers off")
BROKER: Final = pytest.mark.needs(EMBEDDED, "a broker of the cluster's own")
WHOLE: Final = pytest.mark.needs(EMBEDDED, "a program that starts everything itself")
SPARK_4_0: Final = pytest.mark.needs("spark-4.0", "Spark 4.0, for which the jars of readers are locked")
CONNECT: Final = pytest.mark.needs("connect", "Spark Connect alone (--spark=connect)")
_LEFT_OUT: Final = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("connectx")
    group.addoption("--spark", choices=[LOCAL, "connect"], default=LOCAL, help="where tests take Spark from")
    group.addoption("--kafka", choices=[EMBEDDED, "own"], default=EMBEDDED, help="where tests take Kafka from")
    group.addoption("--broker", choices=VERSIONS, help="Kafka of brokers in place of the embedded one")
    group.addoption("--built", type=Path, help="folder of the wheel and sdist to test; by default they are built")
    group.addoption("--seeds", type=int, default=SEEDS, help="how many clusters with random faults are simulated")


def pytest_configure(config: pytest.Config) -> None:
    what = "needs(what, reason): only in runs whose --spark or --kafka is this, and why"
    config.addinivalue_line("markers", what)
    if version := config.getoption("--broker"):
        stack = ExitStack()
        stack.enter_context(other_kafka(version))
        config.add_cleanup(stack.close)
    if not hasattr(config, "workerinput"):  # a worker of xdist belongs to the run of its parent
        watch()
    # A run in the background ignores Ctrl-C, and so would every program that a test starts and interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot be had in this run, by its marker, and count it."""
    had = {config.getoption("--spark"), config.getoption("--kafka"), f"spark-{jars.spark_version()[:3]}"}
    reasons = {item.nodeid: _reasons(item, had) for item in items}
    gone = [item for item in items if reasons[item.nodeid]]
    config.stash[_LEFT_OUT] = Counter(reasons[item.nodeid][0] for item in gone)
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if not reasons[item.nodeid]]


def pytest_collection_finish() -> None:
    """Spare the garbage collector what lives until the end of the run: modules and collected tests."""
    gc.freeze()


def _reasons(item: pytest.Item, had: set[Any]) -> list[str]:
    return [reason for thing, reason in (mark.args for mark in item.iter_markers("needs")) if thing not in had]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report what was left out or skipped, and why."""
    for reason, count in sorted(config.stash.get(_LEFT_OUT, Counter()).items()):
        terminalreporter.write_line(f"left out: {count:3} that need {reason}")
    skipped = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ()))
    for reason, count in sorted(skipped.items()):
        terminalreporter.write_line(f"skipped: {count:4}. {reason.removeprefix('Skipped: ')}")
