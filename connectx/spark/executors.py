"""Executors of Spark: how many tasks they run at a time, and the end of those that are children of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectx.errors.spark import NoExecutorError

if TYPE_CHECKING:
    import psutil
    from pyspark import SparkConf
    from pyspark.sql import SparkSession


def executor_cores(session: SparkSession) -> int:
    """Tasks that the executors of a session can run at a time: those that are there, or that may be allocated.

    Asking a Spark Connect session runs a small job, which counts as many as Spark splits a range into. A classic
    session whose executors have not registered yet has 0.
    """
    if not type(session).__module__.startswith("pyspark.sql.connect"):
        context: Any = session.sparkContext
        executors = context._jsc.sc().statusStore().executorList(True)
        present = sum(executors.apply(at).maxTasks() for at in range(executors.size()))
        return max(int(present), _allocatable(context._conf))  # getConf() would copy the settings, a call for each
    from pyspark.sql import functions as F

    # A range has as many partitions as there are cores.
    return session.range(1_000_000).select(F.spark_partition_id().alias("core")).distinct().count()


def _allocatable(conf: SparkConf) -> int:
    """Tasks of all executors that dynamic allocation may start; 0 if it has no limit, or is off."""
    if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return 0
    most, cores, of_task = (
        int(conf.get(f"spark.{key}", default) or default)
        for key, default in (("dynamicAllocation.maxExecutors", "0"), ("executor.cores", "1"), ("task.cpus", "1"))
    )
    return most * (cores // of_task)


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
