"""Versions: of connectx, and of the Kafka and Spark that it works with."""

from typing import Final

VERSION: Final = "0.2.0"
"""Of the package, and of the connectors that are connectx's own."""

KAFKA_VERSION: Final = "4.3.0"
"""The Kafka Connect that REST, formats and plugins of Kafka's names equal."""

SPARK_VERSIONS: Final = ("4.0", "4.1", "4.2", "4.3")
"""What tests run with; the extra `spark` in pyproject.toml allows the same."""
