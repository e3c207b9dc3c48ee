"""`connectx replay`: the story and the verdict of a saved history, or a replay of recorded cores with `--core`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connectx.cli.common import FAILED, Json, reporting_errors
from connectx.cli.output import print_safely
from connectx.errors.plugins import ConfigError
from connectx.errors.rest import CommandError

if TYPE_CHECKING:
    from connectx.verify.check.verdict import Verdict


def replay(
    history: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A file written by EventLog.to_jsonl, or with --core by cluster.record."),
    ],
    core: Annotated[bool, typer.Option("--core", help="Replay recorded cores instead of a history.")] = False,
    to_test: Annotated[
        Path | None, typer.Option(help="With --core: write a pytest file here that replays the recording.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write timeline and story as an HTML page.")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="Compare this topic with what was committed.")] = None,
    target: Annotated[str | None, typer.Option(help="Compare a file (lines, .csv, .parquet) with the topics.")] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option(envvar="CONNECTX_BOOTSTRAP_SERVERS", help="Kafka that has the topics.")
    ] = None,
    key: Annotated[list[str] | None, typer.Option(help="A field that identifies a record; repeatable.")] = None,
    scenario: Annotated[
        list[str] | None, typer.Option(help="A situation that the run must have had; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the story of a saved history, with its verdict. The exit code is 1 when the verdict is invalid.

    With --core, show the first step of each core that fails, breaks a rule, or orders something else than was
    recorded. The exit code is 1 if there is one.

    Without --topic the verdict covers the history alone and is unknown at best, because no data was read.
    """
    with reporting_errors():
        if core or to_test is not None:
            _replay_cores(history, to_test, as_json)
            return
        _replay(history, html, topic or [], target, bootstrap_servers, key or [], scenario or [], as_json)


def _replay(
    history: Path,
    html: Path | None,
    topics: list[str],
    target: str | None,
    bootstrap_servers: str | None,
    key: list[str],
    scenarios: list[str],
    as_json: bool,
) -> None:
    from connectx.history.log import EventLog
    from connectx.history.render.frame import clock_time
    from connectx.history.render.report import write_report
    from connectx.verify.check.check import check

    log = EventLog.from_jsonl(history)
    if not len(log):
        raise CommandError(f"The history in {history} is empty.")
    stories = log.stories()
    try:
        verdict = check(
            log, topic=topics, target=target, bootstrap_servers=bootstrap_servers, key=key, scenario=scenarios
        )
    except ConfigError as error:
        raise CommandError(str(error)) from error
    if html is not None:
        write_report(log, html)
    if as_json:
        stories_found = [{"time_ms": s.time_ms, "seq": s.seq, "kind": s.kind, "sentence": str(s)} for s in stories]
        print_safely(_json({"events": len(log), "stories": stories_found, "verdict": _of(verdict)}))
    else:
        first, last = log[0], log[-1]
        print_safely(f"{len(log):,} events from {clock_time(first.time_ms)} to {clock_time(last.time_ms)}")
        for story in stories:
            print_safely(f"{clock_time(story.time_ms)}  {story}")
        if not stories:
            print_safely("The history has no fault, no failure, no fencing and no change of leader.")
        print_safely(f"\n{verdict!r}")
        if html is not None:
            print_safely(f"Timeline: {html}")
    if verdict.answer == "invalid":
        raise typer.Exit(FAILED)


def _replay_cores(path: Path, to_test: Path | None, as_json: bool) -> None:
    from connectx.recording.file import read_recordings
    from connectx.recording.replay import first_difference, late_answers, write_test

    results = [(one, first_difference(one), tuple(late_answers(one))) for one in read_recordings(path)]
    written = None if to_test is None else write_test(path, to_test)
    if as_json:
        cores = [
            {
                "kind": recording.kind,
                "name": recording.name,
                "reason": recording.reason,
                "steps": len(recording.entries),
                "late": list(late),
                "difference": None if difference is None else asdict(difference),
            }
            for recording, difference, late in results
        ]
        print_safely(_json({"cores": cores, "test": None if written is None else str(written)}))
    else:
        for recording, difference, late in results:
            steps = f"{len(recording.entries):,} steps, {len(late):,} late answers were ignored"
            print_safely(f"{recording.kind} {recording.name}: {steps}")
            if recording.reason:
                print_safely(f"  written because {recording.reason}")
            print_safely("  each step is as recorded" if difference is None else f"  {difference}")
        if written is not None:
            print_safely(f"Test: {written}")
    if any(difference is not None for _, difference, _ in results):
        raise typer.Exit(FAILED)


def _of(verdict: Verdict) -> dict[str, Any]:
    return {
        "answer": verdict.answer,
        "sentence": verdict.sentence,
        "findings": [
            {"anomaly": one.anomaly.value, "count": one.count, "place": one.place, "sentence": one.sentence}
            for one in verdict.findings
        ],
        "reasons": list(verdict.reasons),
    }


def _json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)
