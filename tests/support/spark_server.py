"""A Spark Connect server in another process: prints its address in a line, and ends with its standard input."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from connectx.spark.sessions import SparkProvider


@contextmanager
def spark_server() -> Iterator[str]:
    """Yield the address of a server."""
    command = [sys.executable, "-m", "tests.support.spark_server"]
    # pyspark marks the environment of a process that has a Spark Connect session; the server's driver is a classic one.
    env = {key: value for key, value in os.environ.items() if key not in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE")}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.stdin.close()


if __name__ == "__main__":
    provider = SparkProvider(serve=True)
    provider.start()
    sys.stdout.write(provider.connect_url.result(120) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    provider.close()
