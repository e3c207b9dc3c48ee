"""The demo on a Spark cluster: its file of many years, and its verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.spark_cluster import SparkOutcome, multiply
from connectx.demo.measures import SUMMED, Measures, measure_file

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,"
    "dest,air_time,distance,hour,minute,time_hour\n"
)
LINE = "2013,12,31,2013,515,2,830,819,11,UA,2013,N14228,EWR,IAH,227,1400,5,15,2014-01-01T01:00:00Z\n"
SAME = Measures(rows=8, keys=8, sums=dict.fromkeys(SUMMED, 3), checksum=7)


def outcome(**places: Measures) -> SparkOutcome:
    found = {"CSV file": SAME, "Topic": SAME, "PostgreSQL": SAME, "Delta": SAME, **places}
    return SparkOutcome(found, ("executor 7", "a Spark worker", "worker-2"), (), 3, 2, 2, 60.0)


def test_copies_are_the_same_flights_of_later_years_and_each_has_another_key(tmp_path: Path) -> None:
    path = tmp_path / "flights.csv"
    path.write_text(HEADER + LINE)
    lines = multiply(path, 3).read_text().splitlines(keepends=True)
    later = "2015,12,31,2013,515,2,830,819,11,UA,2013,N14228,EWR,IAH,227,1400,5,15,2016-01-01T01:00:00Z\n"
    assert [lines[0], lines[1], lines[3]] == [HEADER, LINE, later]
    measured = measure_file(tmp_path / "flights-many.csv")
    assert (measured.rows, measured.keys, measured.sums["distance"]) == (3, 3, 4_200)


def test_all_places_alike_and_three_kills_are_good() -> None:
    verdict = outcome().verdict()
    assert verdict.is_good
    assert "all 8 flights are in both tables once" in verdict.sentence
    assert "executor 7, a Spark worker and worker-2 were killed" in verdict.sentence


def test_one_place_that_differs_or_one_kill_that_was_not_made_is_not() -> None:
    differing = outcome(Delta=replace(SAME, checksum=8)).verdict()
    assert not differing.is_good
    assert "checksum of all 19 columns (MD5) differs" in differing.sentence
    assert not replace(outcome(), missed=("no job ran",)).verdict().is_good


def test_the_report_says_in_words_what_was_killed() -> None:
    assert outcome().shown() == {
        "killed": "executor 7, a Spark worker and worker-2",
        "jobs": "3",
        "failed jobs": "2",
        "aborted transactions": "2",
        "seconds": "60.0",
    }
