"""A tier repeats what failed, names what is flaky, and is held to a budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import budget
from tests.support.tiers import ALLOWED_FLAKES, ROOT, TIERS, Part, Report, Result, run_part, run_tier, summary
from tests.support.waiting import until

FLAKY = """
from pathlib import Path
def test_{name}():
    seen = Path("{name}.seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
WriteTests = Callable[..., Part]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteTests:
    """`write(text, name="part", **options)`: a file of tests, and the part that runs it, without slow plugins."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "test-artefacts").mkdir()

    def make(text: str, name: str = "part", **options: Any) -> Part:
        file = tmp_path / "tests" / f"test_{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return Part(name, (str(file.relative_to(tmp_path)), "-q", "--rootdir=.", "-p", "xdist"), **options)

    return make


@pytest.mark.parametrize("workers", [0, 2])
def test_a_test_that_passes_when_repeated_is_flaky_and_one_that_fails_twice_has_failed(
    write: WriteTests, tmp_path: Path, workers: int
) -> None:
    part = write(FLAKY.format(name="once") + "def test_never(): assert False\ndef test_good(): pass\n", workers=workers)
    result = run_part(part, tmp_path)
    assert result.flaky == ["tests/test_part.py::test_once"]
    assert result.failed == ["tests/test_part.py::test_never"]
    assert result.passed == 1
    assert list(result.seconds) == ["tests/test_part.py"]
    again = Report.read(tmp_path / "test-artefacts" / "part-again.xml")
    assert again.passed | again.failed == {"tests/test_part.py::test_once", "tests/test_part.py::test_never"}


def test_an_error_in_a_fixtures_end_is_a_failure(write: WriteTests, tmp_path: Path) -> None:
    text = "import pytest\n@pytest.fixture\ndef broken():\n    yield\n    1 / 0\ndef test_it(broken): pass\n"
    assert run_part(write(text), tmp_path).failed == ["tests/test_part.py::test_it"]


def test_of_tests_that_build_on_each_other_the_files_with_a_failure_are_repeated(
    write: WriteTests, tmp_path: Path
) -> None:
    write("def test_other(): pass\n", "other")
    part = write("def test_first(): pass\n" + FLAKY.format(name="second"), repeats_files=True)
    assert run_part(replace(part, arguments=("tests", *part.arguments[1:])), tmp_path).flaky == [
        "tests/test_part.py::test_second"
    ]
    again = Report.read(tmp_path / "test-artefacts" / "part-again.xml")
    assert again.passed == {"tests/test_part.py::test_first", "tests/test_part.py::test_second"}


def test_a_flaky_test_counts_with_the_seconds_of_its_good_run(write: WriteTests, tmp_path: Path) -> None:
    slow_failure = FLAKY.format(name="once").replace("    assert not first", "    assert not first or time.sleep(0.1)")
    result = run_part(write("import time\n" + slow_failure), tmp_path)
    test = "tests/test_part.py::test_once"
    first, again = (
        Report.read(tmp_path / "test-artefacts" / name).seconds[test] for name in ("part.xml", "part-again.xml")
    )
    assert (result.flaky, result.seconds) == ([test], {"tests/test_part.py": again})
    assert first != again


@pytest.mark.parametrize("text", ["import no_such_module\n", "", "import os\ndef test_crash(): os._exit(1)\n"])
def test_a_part_that_cannot_run_its_tests_has_failed(write: WriteTests, tmp_path: Path, text: str) -> None:
    result = run_part(write(text), tmp_path)
    assert result.failed[-1].startswith("part: pytest ended with exit code")
    assert not result.is_good


CRASH = """
import os, signal
def test_before(): pass
def test_crash(): os.kill(os.getpid(), signal.SIGSEGV)
"""
CRASH_ONCE = CRASH.replace("def test_crash():", "def test_crash(): os.path.exists('seen') or open('seen', 'w') and")


@pytest.mark.parametrize("after", [0, 1, 2])
def test_after_a_crash_of_a_worker_the_tests_that_it_left_are_run_and_the_crashed_one_is_repeated(
    write: WriteTests, tmp_path: Path, after: int
) -> None:
    write("def test_early(): pass\n", "early")
    write("def test_other(): pass\n", "other")
    rest = "".join(f"def test_after_{number}(): pass\n" for number in range(after))
    part = write(CRASH_ONCE + rest, "middle", workers=1)
    result = run_part(replace(part, arguments=("tests", *part.arguments[1:])), tmp_path)
    assert result.flaky == ["tests/test_middle.py::test_crash"]
    assert result.failed == []
    assert result.passed == 3 + after


def test_a_test_that_crashes_its_worker_and_then_pytest_has_failed(write: WriteTests, tmp_path: Path) -> None:
    result = run_part(write(CRASH + "def test_after(): pass\n", workers=2), tmp_path)
    assert result.failed == ["tests/test_part.py::test_crash"]
    assert result.passed == 2


def test_a_part_in_which_more_workers_crash_than_are_replaced_has_failed(write: WriteTests, tmp_path: Path) -> None:
    crashes = "".join(CRASH.replace("test_", f"test_{number}_") for number in range(6))
    result = run_part(write(crashes + "def test_after(): pass\n", workers=1), tmp_path)
    assert result.failed[-1] == "part: pytest ended with exit code 3"


def test_a_crash_of_pytest_names_the_test(write: WriteTests, tmp_path: Path) -> None:
    result = run_part(write(CRASH), tmp_path)
    assert result.failed == ["part: pytest ended with exit code -11 in tests/test_part.py::test_crash"]


def test_a_part_without_progress_is_killed_with_what_it_started_and_prints_its_stacks(
    write: WriteTests, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = """
import subprocess, sys, threading
def test_stall():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open("child", "w").write(str(child.pid))
    threading.Event().wait()
"""
    result = run_part(write(text, workers=1, stalls_s=10), tmp_path, shows_output=False)
    stall = "after 10 s in which no test began or ended in tests/test_part.py::test_stall"
    assert result.failed == [f"part: pytest ended with exit code -6 {stall}"]
    assert "in test_stall" in capfd.readouterr().out
    child = int((tmp_path / "child").read_text())
    until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE, "its end")


def test_a_skipped_test_has_not_passed_and_the_summary_gives_its_reason(write: WriteTests, tmp_path: Path) -> None:
    text = "import pytest\ndef test_no(): pytest.skip('no shelf')\ndef test_yes(): pass\n"
    result = run_part(write(text), tmp_path)
    assert (result.passed, result.skipped, result.is_good) == (1, {"no shelf": 1}, True)
    assert summary(result).splitlines()[-1] == "SKIPPED: 1 tests. no shelf"


def test_only_parts_that_need_java_wait_for_the_archives(write: WriteTests, tmp_path: Path) -> None:
    prepare = ("sh", "-c", f"until [ -e {tmp_path}/first ]; do sleep 0.05; done; touch {tmp_path}/archive")
    first = write("def test_it(): open('first', 'w').close()\n", "first", needs_java=False)
    second = write("import os\ndef test_it(): assert os.path.exists('archive')\n", "second")
    result = run_tier([(first,), (second,)], tmp_path, prepare)
    assert (result.passed, result.failed) == (2, [])


def test_without_archives_no_part_that_needs_java_starts(write: WriteTests, tmp_path: Path) -> None:
    first = write("def test_it(): pass\n", "first", needs_java=False)
    second = write("def test_it(): pass\n", "second")
    result = run_tier([(first,), (second,)], tmp_path, ("sh", "-c", "echo no disk; exit 3"))
    assert (result.passed, result.failed) == (1, ["sh -c echo no disk; exit 3 ended with exit code 3:\nno disk\n"])


def test_every_place_that_a_tier_names_exists() -> None:
    arguments = {given for stages in TIERS.values() for stage in stages for part in stage for given in part.arguments}
    places = {given.partition("=")[2] if given.startswith("--") else given for given in arguments}
    files = {place.partition("::")[0] for place in places if place.startswith("tests/")}
    assert len(files) > 20
    assert {file for file in files if not (ROOT / file).exists()} == set()


def test_every_test_that_quick_leaves_out_is_one_of_make_test() -> None:
    (quick,), *others = TIERS["test"]
    ignored = {given.removeprefix("--ignore=") for given in quick.arguments if given.startswith("--ignore=")}
    assert ignored != set()
    assert ignored <= {given for stage in others for part in stage for given in part.arguments}


def test_parts_of_a_tier_add_up(write: WriteTests, tmp_path: Path) -> None:
    parts = [write("def test_it(): pass\n", name) for name in ("one", "two", "three")]
    result = run_tier([(parts[0], parts[1]), (parts[2],)], tmp_path)
    assert result.is_good
    assert sorted(result.seconds) == [f"tests/test_{name}.py" for name in ("one", "three", "two")]


def test_a_file_that_two_parts_run_counts_twice() -> None:
    whole = Result()
    for seconds in (1.0, 2.0):
        whole.add(Result(seconds={"tests/test_a.py": seconds}))
    assert whole.seconds == {"tests/test_a.py": 3.0}


def test_the_summary_names_flaky_tests_and_too_many_fail_the_run() -> None:
    few = Result(flaky=[f"test_{number}" for number in range(ALLOWED_FLAKES)])
    assert few.is_good
    assert summary(few).splitlines() == ["flaky: test_0", "flaky: test_1"]
    many = Result(flaky=[*few.flaky, "test_x"])
    assert not many.is_good
    assert summary(many).splitlines()[-1] == "FAILED: 3 flaky tests; at most 2 are allowed"


RUN: dict[str, Any] = {
    "calibration_s": 0.1,
    "wall_s": 100.0,
    "seconds": {"tests/a/test_1.py": 40.0, "tests/a/test_2.py": 40.0},
}


def test_a_run_gives_its_own_budget() -> None:
    made = budget.budget_of(RUN)
    assert made == {"calibration_s": 0.1, "wall_s": 100, "folders": {"tests/a": 80.0}}
    assert budget.exceeded(made, RUN) == []


def test_a_tier_and_a_folder_that_take_more_than_a_quarter_longer_exceed_the_budget() -> None:
    slow = {**RUN, "wall_s": 136.0, "seconds": {"tests/a/test_1.py": 111.0}}
    assert budget.exceeded(budget.budget_of(RUN), slow) == [
        "the whole tier took 136 s; its budget allows 135 s",
        "tests/a took 111 s; its budget allows 110 s",
    ]


def test_a_folder_without_a_budget_may_take_a_few_seconds_only() -> None:
    more = {**RUN, "seconds": {**RUN["seconds"], "tests/new/test_1.py": 11.0}}
    assert budget.exceeded(budget.budget_of(RUN), more) == ["tests/new took 11 s; its budget allows 10 s"]


def test_a_slower_machine_may_take_longer_and_a_faster_one_as_long() -> None:
    slow = {**RUN, "wall_s": 200.0}
    assert budget.exceeded(budget.budget_of(RUN), {**slow, "calibration_s": 0.2}) == []
    assert budget.exceeded(budget.budget_of(RUN), {**RUN, "calibration_s": 0.01}) == []


def test_the_command_writes_a_budget_and_checks_a_run_against_it(tmp_path: Path) -> None:
    (tmp_path / "test.json").write_text(json.dumps(RUN))
    file = tmp_path / "budget.json"
    assert budget.main(["check", "test"], tmp_path, file) == 1
    assert budget.main(["write"], tmp_path, file) == 0
    assert budget.main(["check", "test"], tmp_path, file) == 0
    (tmp_path / "test.json").write_text(json.dumps({**RUN, "wall_s": 1000.0}))
    assert budget.main(["check", "test"], tmp_path, file) == 1
