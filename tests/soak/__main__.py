"""`python -m tests.soak --minutes 10`: flows under chaos in both isolations, and a verdict. Exit code 1 unless good."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

from tests.soak.run import KINDS, Half, soak
from tests.support.databases import postgres_server

ISOLATIONS = ("thread", "process")


def main() -> int:
    """Run the soak."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of chaos in all, half of it in each isolation")
    parser.add_argument("--seed", type=int, default=None, help="of the chaos; drawn and printed when left out")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two faults")
    parser.add_argument("--isolation", choices=ISOLATIONS, action="append", help="only this one")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of faults, separated by commas")
    parser.add_argument("--history", type=Path, default=Path("test-artefacts"), help="folder for the histories")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    isolations = given.isolation or list(ISOLATIONS)
    given.history.mkdir(parents=True, exist_ok=True)
    say(f"soak of {given.minutes:g} min, seed {seed}: repeat it with --seed {seed}")
    halves: list[Half] = []
    with postgres_server() as uri:
        for isolation in isolations:
            history = given.history / f"soak-{seed}-{isolation}.jsonl"
            seconds = given.minutes * 60 / len(isolations)
            half = soak(
                isolation,
                seed=seed,
                seconds=seconds,
                every_s=given.every,
                kinds=given.kinds.split(","),
                uri=uri,
                history=history,
                say=say,
            )
            halves.append(half)
            summarize(half, history)
    good = all(half.is_good for half in halves)
    faults = sum((Counter(half.faults) for half in halves), Counter[str]())
    print(
        json.dumps(
            {
                "seed": seed,
                "minutes": given.minutes,
                "faults": faults.total(),
                "faults_by_kind": dict(sorted(faults.items())),
                "records": sum(half.records for half in halves),
                "fenced": sum(half.fenced for half in halves),
                "lost": sum(measure.lost for half in halves for measure in half.measures),
                "duplicated": sum(measure.duplicated for half in halves for measure in half.measures),
                "reordered": sum(measure.reordered for half in halves for measure in half.measures),
                "good": good,
                "halves": [half.line() for half in halves],
            }
        )
    )
    return 0 if good else 1


def say(text: str) -> None:
    """A line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def summarize(half: Half, history: Path) -> None:
    """One half in lines."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in half.faults.items())
    say(f"{half.isolation}: {sum(half.faults.values())} faults ({kinds}), {half.skipped} left out; "
        f"{half.rebalances} rebalances, {half.fenced} fenced")  # fmt: skip
    for one in half.measures:
        say(f"{half.isolation}: {one.place}: {one.records:,} of {one.expected:,}, lost {one.lost}, "
            f"duplicated {one.duplicated}, reordered {one.reordered} {' '.join(one.examples)}".rstrip())  # fmt: skip
    say(f"{half.isolation}: cluster.check(): {half.verdict} {half.repeated_lines} of them are lines that the file "
        "sink, which writes at least once, has repeated")  # fmt: skip
    for problem in half.problems:
        say(f"{half.isolation}: PROBLEM {problem}")
    say(f"{half.isolation}: {'good' if half.is_good else 'NOT GOOD'}, history in {history}")


if __name__ == "__main__":
    sys.exit(main())
