"""Runs the tests of a tier, repeats those that failed, and records how long each file took.

    python -m tests.support.tiers quick              # or test, test-all
    python -m tests.support.tiers test-all browser   # some parts of a tier

A test that fails and then passes is flaky. A run fails if a test fails twice, or if more than ALLOWED_FLAKES tests are
flaky. A test that crashes an xdist worker has failed, and the others of its file run in a new worker
(`tests.support.guard`). A part in which no test begins or ends for `stalls_s` is killed, and its stacks are printed.
A run that is interrupted, terminated or killed ends all that it has started (`tests.support.watchdog`).
Spark's and Kafka's class archives are made beside the parts that need no Java.
Each part writes JUnit files to test-artefacts/, a whole tier writes one JSON file for `tests.support.budget`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import psutil

from tests.support.watchdog import watch

ROOT: Final = Path(__file__).parents[2]
ARTEFACTS: Final = ROOT / "test-artefacts"
ALLOWED_FLAKES: Final = 2
_PANEL_S: Final = 600
_WATCH_S: Final = 1.0
_ABORT_S: Final = 10.0
_INTERRUPT_S: Final = 5.0
"""Time that pytest has after Ctrl-C to print what has failed so far."""
_INTERRUPTED: Final = 130
# Java's second compiler pays off in long runs only: without it, a Spark start takes half the processor time. A
# collector with threads beside the program takes another tenth of it.
_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PREPARE: Final = (str(Path(sys.executable).with_name("connectx")), "setup", "--archives")


@dataclass(frozen=True)
class Part:
    """One run of pytest on a number of xdist workers.

    `repeats_files`: the tests of a file build on each other. `stalls_s`: longer than the limit of any test.
    `needs_java`: it waits for the class archives of Kafka and Spark.
    """

    name: str
    arguments: tuple[str, ...]
    workers: int = 0
    python: str = sys.executable
    repeats_files: bool = False
    stalls_s: float = _PANEL_S + 120
    needs_java: bool = True


AT_ONCE: Final = 3  # each is one process, which often waits
Stage = tuple[Part, ...]
"""Parts of which three run at a time, in this order."""


@dataclass
class Report:
    """A JUnit file: seconds of each test, set-up and tear-down included, and the tests by outcome."""

    seconds: dict[str, float] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    """Why each was not run."""

    @classmethod
    def read(cls, path: Path) -> Report:
        """Read the file. Without one, which a crash of pytest leaves, nothing was run."""
        report = cls()
        for case in ElementTree.parse(path).iter("testcase") if path.exists() else ():
            file = case.get("file") or case.get("classname") or ""
            name = f"{file}::{case.get('name')}"
            report.seconds[name] = report.seconds.get(name, 0.0) + float(case.get("time", 0))
            reason = case.find("skipped")
            if any(child.tag in ("failure", "error") for child in case):
                report.failed.add(name)
            elif reason is not None:
                report.skipped[name] = reason.get("message", "")
            else:
                report.passed.add(name)
        return report


@dataclass
class Result:
    """The outcome of a part or a tier: seconds of each test file, and how many tests passed without being repeated.

    `skipped`: how many tests were not run, by the reason.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    flaky: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    passed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def is_good(self) -> bool:
        return not self.failed and len(self.flaky) <= ALLOWED_FLAKES

    def add(self, other: Result) -> None:
        for file, seconds in other.seconds.items():  # some files are in two parts
            self.seconds[file] = self.seconds.get(file, 0.0) + seconds
        self.flaky += other.flaky
        self.failed += other.failed
        self.passed += other.passed
        self.skipped += other.skipped


def run_part(part: Part, root: Path, *, shows_output: bool = True) -> Result:
    """Run a part and repeat what failed. Without `shows_output`, the output of pytest is printed at its end."""
    artefacts = root / ARTEFACTS.name
    first, again = (artefacts / f"{part.name}{suffix}.xml" for suffix in ("", "-again"))
    log = None if shows_output else artefacts / f"{part.name}.log"
    cache = root / ".pytest_cache" / part.name
    command = [part.python, "-m", "pytest", *part.arguments, "-o", f"cache_dir={cache}", "-o", "junit_family=xunit1"]
    # A worker takes whole files, in the order of the arguments, so that the tests of a file share its fixtures.
    workers = ("-n", str(part.workers), "--dist=loadfile", "--no-loadscope-reorder") if part.workers else ()
    first.unlink(missing_ok=True)
    end = _pytest([*command, *workers, f"--junitxml={first}"], root, log, part.stalls_s)
    report = Report.read(first)
    skipped = Counter(report.skipped.values())
    if end.code != (1 if report.failed else 0):
        crash = f"{part.name}: {end}"
        return Result(_by_file(report.seconds), [], [*sorted(report.failed), crash], len(report.passed), skipped)
    repeated = Report()
    if report.failed:
        print(f"{part.name}: {len(report.failed)} failed and are repeated", flush=True)
        chosen = ["--last-failed", "--last-failed-no-failures=none"]
        if part.repeats_files:
            chosen = [f"--ignore={file}" for file in sorted(_files(report.passed) - _files(report.failed))]
        again.unlink(missing_ok=True)
        end = _pytest([*command, *chosen, f"--junitxml={again}"], root, log, part.stalls_s)
        if end.code not in (0, 1):
            print(f"{part.name}, repeated: {end}", flush=True)
        repeated = Report.read(again)
    failed = (report.failed - repeated.passed) | repeated.failed
    # A flaky test counts with its good run: a test that fails often waits for its timeout first.
    again_seconds = {name: seconds for name, seconds in repeated.seconds.items() if name in report.failed}
    flaky = sorted(report.failed - failed)
    passed = len(report.passed - failed)
    return Result(_by_file(report.seconds | again_seconds), flaky, sorted(failed), passed, skipped)


def _files(names: Iterable[str]) -> set[str]:
    return {name.partition("::")[0] for name in names}


def _by_file(seconds: Mapping[str, float]) -> dict[str, float]:
    files: defaultdict[str, float] = defaultdict(float)
    for name, taken in seconds.items():
        files[name.partition("::")[0]] += taken
    return dict(files)


@dataclass(frozen=True)
class _End:
    """How a run of pytest ended: its exit code, whether it was killed, and the tests under way."""

    code: int
    stalled_s: float | None
    running: tuple[str, ...]

    def __str__(self) -> str:
        stall = "" if self.stalled_s is None else f" after {self.stalled_s:g} s in which no test began or ended"
        return f"pytest ended with exit code {self.code}{stall}" + (
            f" in {', '.join(self.running)}" if self.running else ""
        )


def _pytest(command: Sequence[str], root: Path, log: Path | None, stalls_s: float) -> _End:
    """Run pytest with its own folder for temporary files. The log's text is printed at the end."""
    # Without bytecode every process of every part would compile connectx and the tests again.
    environment = {**os.environ, "JDK_JAVA_OPTIONS": _JAVA_OPTIONS, "PYTHONDONTWRITEBYTECODE": ""}
    # A run resets the permissions of pytest's default folder, which the user of another run's PostgreSQL needs.
    with (
        tempfile.TemporaryDirectory(prefix="connectx-tests-", ignore_cleanup_errors=True) as folder,
        log.open("w") if log else nullcontext() as output,
    ):
        progress = Path(folder, "progress")
        progress.touch()
        guard = ("-p", "tests.support.guard", f"--progress={progress}", f"--basetemp={folder}/t")
        errors = subprocess.STDOUT if output else None
        with subprocess.Popen(
            [*command, *guard], cwd=root, env=environment, stdout=output, stderr=errors, start_new_session=True
        ) as process:  # a separate session, so that Ctrl-C comes from here, once
            is_stalled = _watch(process, progress, stalls_s)
        running = tuple(progress.read_text().split("\n")[:-1])
    if log:
        print(log.read_text(), end="", flush=True)
    return _End(process.returncode, stalls_s if is_stalled else None, running)


def _watch(process: subprocess.Popen[bytes], progress: Path, stalls_s: float) -> bool:
    """Wait for the end of pytest; kill it if `progress` has not changed for `stalls_s`. Whether it was killed."""
    while True:
        try:
            process.wait(_WATCH_S)
        except subprocess.TimeoutExpired:
            if time.time() - progress.stat().st_mtime > stalls_s:
                _kill(psutil.Process(process.pid))
                return True
        else:
            return False


def _kill(pytest: psutil.Process) -> None:
    """Let pytest and its xdist workers print the stacks of all threads (SIGABRT), then kill what they started."""
    started = pytest.children(recursive=True)
    workers = [child for child in pytest.children() if "exec(eval(sys.stdin.readline()))" in " ".join(child.cmdline())]
    for worker in workers:
        worker.suspend()  # otherwise it ends with pytest, or pytest replaces it
    for process in (pytest, *workers):  # one after the other: they print to the same place
        process.send_signal(signal.SIGABRT)
        process.resume()
        end_s = time.monotonic() + _ABORT_S
        while _is_alive(process) and time.monotonic() < end_s:
            time.sleep(_WATCH_S / 20)
    for process in (pytest, *started):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def run_tier(stages: Sequence[Stage], root: Path = ROOT, prepare: Sequence[str] = ()) -> Result:
    """Run the stages one after the other, and the parts of a stage three at a time.

    `prepare` is a command without which no part that needs Java starts; it runs beside the others.
    """
    (root / ARTEFACTS.name).mkdir(exist_ok=True)
    result = Result()
    with ThreadPoolExecutor(1) as beside:
        prepared = beside.submit(_failure_of, prepare)
        for stage in stages:
            if any(part.needs_java for part in stage) and (failure := prepared.result()) is not None:
                result.failed.append(failure)
                return result
            with ThreadPoolExecutor(AT_ONCE) as pool:
                alone = len(stage) == 1
                for one in pool.map(lambda part, alone=alone: run_part(part, root, shows_output=alone), stage):
                    result.add(one)
    return result


def _failure_of(command: Sequence[str]) -> str | None:
    """Run a command without its output; a sentence with that if it has failed."""
    if not command:
        return None
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return f"{' '.join(command)} ended with exit code {done.returncode}:\n{done.stdout}" if done.returncode else None


def commit_of(root: Path = ROOT) -> str:
    """The hash of the commit that is checked out, with "-dirty" after it if tracked files differ from it."""
    command = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def calibration_s() -> float:
    """Seconds that a fixed loop takes: the speed of the machine, for comparing runs of different machines."""

    def loop() -> float:
        began = time.perf_counter()
        sum(number * number % 7 for number in range(2_000_000))
        return time.perf_counter() - began

    return statistics.median(loop() for _ in range(5))


def slowest(seconds: Mapping[str, float], count: int = 10) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: item[1], reverse=True)[:count]


def summary(result: Result) -> str:
    """The last lines of a run: the slowest folders and files, flaky and failed tests."""
    folders: defaultdict[str, float] = defaultdict(float)
    for file, seconds in result.seconds.items():
        folders[file.rpartition("/")[0]] += seconds
    lines = [f"{seconds:7.1f} s  {place}" for times in (folders, result.seconds) for place, seconds in slowest(times)]
    lines += [f"SKIPPED: {count} tests. {reason}" for reason, count in sorted(result.skipped.items())]
    lines += [f"FAILED: {name}" for name in result.failed]
    lines += [f"flaky: {name}" for name in result.flaky]
    if len(result.flaky) > ALLOWED_FLAKES:
        lines.append(f"FAILED: {len(result.flaky)} flaky tests; at most {ALLOWED_FLAKES} are allowed")
    return "\n".join(lines)


def _over(name: str) -> str:
    """The interpreter of an environment that make lays over the first one."""
    return str(ROOT / f".venv-{name}" / "bin" / "python")


_PURE: Final = ("tests/simulation", "tests/unit", "tests/conformance/test_model.py", "-p", "no:schemathesis")
# Long folders first, so that the workers end at about the same time.
_LONG: Final = ("cluster", "demo", "infra", "processes", "exactly_once")
_INTEGRATION: Final = [path.parent.name for path in (ROOT / "tests" / "integration").glob("*/test_*.py")]
_REAL: Final = (
    "tests/notebooks",
    *(f"tests/integration/{name}" for name in dict.fromkeys((*_LONG, *sorted(_INTEGRATION)))),
    "tests/conformance/test_kafka.py",
    "tests/docs",
)
_PANEL: Final = ("-o", f"timeout={_PANEL_S}")  # a browser and a JupyterLab start in the first test
_VERSIONS: Final = (
    *("tests/databricks/test_versions.py", "tests/unit/widgets", "tests/unit/verify/doctor", "tests/unit/data"),
    *("tests/unit/connectors", "tests/unit/history", "tests/integration/data", "tests/notebooks/test_notebooks.py"),
    *("-k", "not test_notebooks or (prints_what_it_shows and 01-first)"),
)
_CONNECT: Final = (
    *("--spark=connect", "--kafka=own"),
    *(f"tests/integration/cluster/test_{name}.py" for name in ("public_face", "restricted", "closing")),
    *(f"tests/integration/source/test_{name}.py" for name in ("file_source", "datasource")),
    *("tests/integration/sink/test_file_sink.py", "tests/integration/exactly_once/test_zombies.py"),
)
# The sinks of tables whose keys are compared here need no Spark, and the comparison itself has other tests.
_WITHOUT_SPARK: Final = (
    "tests/integration/check/test_keys.py::test_tables_of_upserting_sinks_are_compared_by_the_key_that_they_keep"
)
_SPARK41: Final = (
    *(
        "tests/spark41",
        "tests/unit/jvm/test_jars.py",
        "tests/integration/infra/test_spark.py",
        "tests/integration/check/test_keys.py",
    ),
    *("tests/integration/data", "tests/integration/source/test_file_source.py"),
    *("tests/integration/sink/test_file_sink.py", f"--deselect={_WITHOUT_SPARK}"),
)
_NEWEST_SPARK: Final = (
    *_SPARK41,
    *("tests/integration/source/test_datasource.py", "tests/integration/processes", "tests/unit/data/test_frames.py"),
    *("tests/unit/test_data_frames.py", "tests/unit/connectors/spark"),
    "tests/unit/spark/test_remote_sessions.py",
)
_KAFKA44: Final = (
    *("--broker=4.4", "tests/conformance/test_kafka.py", "tests/integration/infra/test_embedded_kafka.py"),
    *("tests/integration/exactly_once/test_zombies.py", "tests/integration/source/test_exactly_once.py"),
)
_TUTORIALS: Final = ("02-tasks", "03-rebalances", "05-killing-workers", "07-your-own-connector",
                     "08-databricks-and-your-own-kafka", "09-into-the-lakehouse",
                     "10-spark-at-work")  # fmt: skip
# In `make test-all` only: brokers and JVMs of other kinds than users start, what holds the model of a broker to the
# real one, executors in separate JVMs, a change of the guarantee under way, a broker's long absence (a short one is in
# test_chaos.py), and tutorials on what other tests hold.
_DEEP: Final = (
    *(f"tests/notebooks/test_notebooks.py::test_the_notebook_prints_what_it_shows[{name}]" for name in _TUTORIALS),
    "tests/docs",
    "tests/conformance/test_kafka.py",
    "tests/integration/infra",
    "tests/integration/cluster/test_broker.py::"
    "test_everything_goes_on_by_itself_when_the_broker_was_gone_for_20_seconds",
    "tests/integration/sink/test_lake_readers.py",
    "tests/integration/source/test_bulk_on_executors.py",
    "tests/integration/demo/test_demo.py::"
    "test_every_flight_is_in_both_tables_once_although_parts_of_a_spark_cluster_are_killed",
    "tests/integration/kafka/test_late_coordinator.py",
    "tests/integration/exactly_once/test_rolling_upgrade.py",
    "tests/integration/exactly_once/test_three_brokers.py",
    "tests/integration/exactly_once/test_old_broker.py",
)
# The part `wheel` runs the same demo with the same assertions, as users install it.
_IN_WHEEL: Final = "tests/integration/demo/test_demo.py::test_every_flight_arrives_once_although_workers_are_killed"
# What tests the tests and the repository itself, and all conversions in both lanes: `make test` runs it, the loop of
# daily work does not.
_OF_TESTS: Final = (
    *(f"tests/unit/runtime/tasks/test_{kind}_lanes.py" for kind in ("sink", "source")),
    *("tests/simulation/test_mutants.py", "tests/simulation/test_runs.py", "tests/unit/support"),
    *("tests/unit/test_extras.py", "tests/unit/test_kip618.py"),
)
# The same rules for each format, type and order of rows: a third of the time of fast tests. `make test` has them.
_MATRICES: Final = (
    *(f"tests/unit/connectors/lake/test_{name}.py" for name in ("constraints", "file_sizes", "staged_changes")),
    *(f"tests/unit/connectors/lake/test_{name}.py" for name in ("staging", "upserts")),
    "tests/unit/data/json/test_reading_is_strict.py",
)
_NOT_QUICK: Final = (*_OF_TESTS, *_MATRICES)
_QUICK: Final = (
    Part("quick", (*_PURE, "--seeds=24", *(f"--ignore={place}" for place in _NOT_QUICK)), workers=3, needs_java=False),
)
TIERS: Final[Mapping[str, Sequence[Stage]]] = {
    "quick": [_QUICK],
    "test": [_QUICK, (Part("real", (*_REAL, *_NOT_QUICK, *(f"--deselect={place}" for place in _DEEP)), workers=3),)],
    "test-all": [
        (Part("pure", _PURE, workers=2, needs_java=False),),
        (Part("real", (*_REAL, f"--deselect={_IN_WHEEL}"), workers=3),),
        (  # long parts first
            Part("browser", ("tests/browser", *_PANEL), repeats_files=True),
            Part("wheel", ("tests/wheel",)),
            Part("databricks", _VERSIONS, python=_over("databricks")),
            Part("peer", ("tests/peer",)),
            Part("spark41", _SPARK41, python=_over("spark41")),
            Part("connect", _CONNECT),
            Part(
                "databricks-panel",
                ("tests/databricks/test_panel.py", *_PANEL),
                python=_over("databricks"),
                repeats_files=True,
            ),
            Part("soak", ("tests/soak",)),
        ),
    ],
    "matrix": [  # what `test-all` has no time for: one part after the other
        (Part("kafka44", _KAFKA44),),
        (Part("spark42", _NEWEST_SPARK, python=_over("spark42")),),
        (Part("spark43", _NEWEST_SPARK, python=_over("spark43")),),
    ],
}


def supervise() -> None:
    """Let all that this process starts from now on end with it, and with the make that has started it."""
    watch()
    _follow_make()
    signal.signal(signal.SIGINT, _interrupt)


def _follow_make() -> None:
    """End this process when its make has ended, which may not have been able to say so."""
    make = os.getppid()

    def wait() -> None:
        while os.getppid() == make:
            time.sleep(_WATCH_S)
        os.kill(os.getpid(), signal.SIGKILL)

    if "MAKELEVEL" in os.environ:
        threading.Thread(target=wait, name="make", daemon=True).start()


def _interrupt(_number: int, _frame: object) -> None:
    """Pass Ctrl-C to each pytest, which then prints what has failed, and end soon whatever that takes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = threading.Timer(_INTERRUPT_S, os._exit, (_INTERRUPTED,))
    end.daemon = True
    end.start()
    for process in psutil.Process().children():
        process.send_signal(signal.SIGINT)
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a tier, or some parts of it; 0 if it is good."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.tiers", description=__doc__)
    parser.add_argument("tier", choices=TIERS)
    parser.add_argument("parts", nargs="*", help="names of parts, instead of the whole tier")
    given = parser.parse_args(arguments)
    stages = TIERS[given.tier]
    if given.parts:
        names = [part.name for stage in stages for part in stage]
        if unknown := set(given.parts).difference(names):
            parser.error(f"unknown parts {sorted(unknown)}: {given.tier} has {names}")
        stages = [(part,) for stage in stages for part in stage if part.name in given.parts]
    supervise()
    commit, speed, began = commit_of(), calibration_s(), time.monotonic()
    needs_java = any(part.needs_java for stage in stages for part in stage)
    try:
        result = run_tier(stages, prepare=_PREPARE if needs_java else ())
    except KeyboardInterrupt:
        return _INTERRUPTED
    wall = time.monotonic() - began
    if not given.parts:
        record = {
            "commit": commit,
            "calibration_s": speed,
            "wall_s": wall,
            "passed": result.passed,
            "failed": result.failed,
            "flaky": result.flaky,
            "skipped": dict(result.skipped),
            "seconds": dict(sorted(result.seconds.items())),
        }
        (ARTEFACTS / f"{given.tier}.json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"{summary(result)}\n{given.tier}: {wall:.0f} s")
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
