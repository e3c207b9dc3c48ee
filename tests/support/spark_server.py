"""A Spark Connect server in a process of its own: says its address in a line, and ends with its standard input.

With the argument `bare` it has no Kafka source, as where no jars may be added.
"""

from __future__ import annotations

import sys

from connectx.spark import launcher
from connectx.spark.sessions import SparkProvider

if __name__ == "__main__":
    if "bare" in sys.argv[1:]:
        whole = launcher.class_path
        launcher.class_path = lambda kafka_jars: whole([])
    provider = SparkProvider(serve=True)
    provider.start()
    sys.stdout.write(provider.connect_url.result(120) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    provider.close()
