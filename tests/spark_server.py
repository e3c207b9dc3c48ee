"""A Spark Connect server in a process of its own: says its address in a line, and ends with its standard input."""

from __future__ import annotations

import sys

from connectx.spark.sessions import SparkProvider

if __name__ == "__main__":
    provider = SparkProvider(serve=True)
    provider.start()
    sys.stdout.write(provider.connect_url.result(120) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    provider.close()
