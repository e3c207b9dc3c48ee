"""A database is read through Spark and the database's own JDBC driver, over the kill of a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.debezium import postgres_on_loopback
from tests.support.programs import example_of, link_jars, run

BEFORE: Final = """
from adbc_driver_postgresql import dbapi

shop = dbapi.connect("{uri}", autocommit=True).cursor()
shop.execute("CREATE TABLE payments (id int PRIMARY KEY, amount numeric(9,2), updated_at timestamptz NOT NULL)")

def pay(first, last):
    shop.execute("INSERT INTO payments SELECT n, n / 7.0, timestamptz '2026-01-01' + n / 3 * interval '1 second' "
                 f"FROM generate_series({{first}}, {{last}}) n")

pay(1, 300)
"""

AFTER: Final = """
import json

cluster.wait_committed("payments", 300, timeout=120)
pay(301, 600)
cluster.kill(next(worker.name for worker in cluster.workers if "payments-0" in worker.tasks))
pay(601, 900)
cluster.wait_committed("payments", 900, timeout=120)
found = cx.read_topic("payments", cluster.bootstrap_servers, at_least=900)
print([json.loads(value)["id"] for value in found["value"]] == list(range(1, 901)))
print(cluster.check(timeout=120).require_valid().checked[0].found)
cluster.close()
"""


def test_the_example_reads_every_row_once_with_the_driver_of_postgresql_when_a_worker_is_killed(tmp_path: Path) -> None:
    code = example_of("docs/connectors/spark-source.md", "test_spark_jdbc.py")
    assert link_jars("postgresql-jdbc", tmp_path)[0].file in code
    with postgres_on_loopback() as port:
        server = f"127.0.0.1:{port}/postgres?user=postgres"
        code = code.replace("db/shop", server)
        printed = run(BEFORE.format(uri=f"postgresql://{server}") + code + AFTER, tmp_path)
    assert printed.splitlines()[-2:] == ["True", "900"]
