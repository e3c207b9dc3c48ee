"""`make spark41` and `make matrix` test with the Spark that they say."""

from __future__ import annotations

import re
from pathlib import Path

from connectx.jvm import jars
from connectx.spark.sessions import SparkProvider


def test_this_environment_has_the_pinned_spark(spark_provider: SparkProvider) -> None:
    version = jars.spark_version()
    name = "spark" + "".join(version.split(".")[:2])
    pinned = (Path(__file__).parents[1] / name / "requirements.txt").read_text()
    assert re.findall(r"^pyspark==(.*)$", pinned, re.MULTILINE) == [version]
    assert spark_provider.get().version == version
