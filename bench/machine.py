"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

import psutil


def describe() -> dict[str, object]:
    """Processor, memory and versions, without names or paths of this machine."""
    model = "unknown"
    try:
        with open("/proc/cpuinfo") as lines:
            model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return {
        "measure": "machine",
        "cores": os.cpu_count(),
        "processor": model,
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": platform.system(),
        "load_before": round(os.getloadavg()[1], 1),
        "python": platform.python_version(),
        **{package: version(package) for package in ("pyspark", "confluent-kafka", "pyarrow", "connectx")},
    }


def tree_rss_mb() -> float:
    """Resident memory of this Python process, children (Kafka, Spark) left out, in MB."""
    return float(psutil.Process().memory_info().rss / 2**20)
