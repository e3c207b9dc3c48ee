"""`python -m bench [NAME ...]`: run the named measurements, or all of them, and print JSON lines."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from bench import (
    avro_peer,
    bulk,
    cdc,
    cdc_peer,
    cluster,
    conversion,
    databases,
    flows,
    lake,
    peer,
    processes,
    scale,
    shapes,
)
from bench.machine import describe

Measurement = Callable[[], Iterator[dict[str, object]]]

_NOT_BY_DEFAULT = ("peer", "cdc_peer", "avro_peer", "iceberg_peer", "steady")


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Measurements to run; by default all but steady and those with Java.")
    ] = None,
    records: Annotated[int, typer.Option(help="Records of a throughput run.")] = 1_000_000,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the result there, too.")] = None,
    minutes: Annotated[float, typer.Option(help="Length of the steady flow.")] = 20.0,
) -> None:
    """Measure connectx on this machine. Figures of a shared machine move: compare ratios, not single runs."""
    measurements: dict[str, Measurement] = {
        "start": lambda: cluster.measure_start(5),
        "memory": cluster.measure_memory,
        "idle": lambda: cluster.measure_idle(20),
        "json": conversion.measure_json,
        "shapes": shapes.measure_shapes,
        "avro": conversion.measure_avro,
        "json_schema": conversion.measure_json_schema,
        "protobuf": conversion.measure_protobuf,
        "source": lambda: flows.measure_sources(records),
        "bulk": lambda: bulk.measure_bulk(records),
        "transforms": lambda: flows.measure_transforms(records),
        "fetch": lambda: flows.measure_fetch(records),
        "file_sink": lambda: flows.measure_file_sink(records),
        "generator": lambda: flows.measure_generator(records),
        "directory_source": lambda: flows.measure_directory_source(records),
        "jdbc_source": lambda: databases.measure_jdbc_source(records),
        "postgres_cdc": lambda: cdc.measure_postgres_cdc(records // 4),
        "mirror": lambda: flows.measure_mirror(records),
        "postgres_sink": lambda: flows.measure_postgres_sink(records // 2),
        "jdbc_sink": lambda: databases.measure_jdbc_sink(records // 5),
        "http_sink": lambda: flows.measure_http_sink(records // 10),
        "lake_sinks": lambda: lake.measure_lake_sinks(records * 2),
        "iceberg_peer": lambda: lake.measure_iceberg_peer(records),
        "latency": lambda: flows.measure_latency(200),
        "failover": lambda: cluster.measure_failover(3),
        "scale": scale.measure_scale,
        "processes": processes.measure_processes,
        "process_start": lambda: processes.measure_process_start(3),
        "process_failover": lambda: processes.measure_process_failover(3),
        "peer": lambda: peer.measure_peer(records * 3),  # so that a run lasts some seconds
        "cdc_peer": lambda: cdc_peer.measure_cdc_peer(records // 5),
        "avro_peer": lambda: avro_peer.measure_avro_peer(records),
        "steady": lambda: cluster.measure_steady(minutes),
    }
    chosen = names or [name for name in measurements if name not in _NOT_BY_DEFAULT]
    unknown = sorted(set(chosen) - set(measurements))
    if unknown:
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; known: {', '.join(measurements)}")
    machine, found = describe(), list[dict[str, object]]()
    print(json.dumps(machine), flush=True)
    for name in chosen:
        for figure in measurements[name]():
            print(json.dumps(figure), flush=True)
            found.append(figure)
            if json_path is not None:  # after each figure: a later measurement may fail
                result = {
                    "date": f"{datetime.now(UTC):%Y-%m-%d}",
                    "machine": machine,
                    "records": records,
                    "figures": found,
                }
                json_path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
