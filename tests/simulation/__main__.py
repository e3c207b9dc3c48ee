"""`python -m tests.simulation`: simulated clusters with faults, one for each seed; the same as `make simulate`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pool

from tests.simulation import producer_runs
from tests.simulation.chooser import read, written
from tests.simulation.reporting import report
from tests.simulation.runs import run_seed, run_trail, shortest
from tests.simulation.trails import keep


def main() -> int:
    """Exit status 0 when all invariants held in all runs."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--replay", metavar="TRAIL", help="a trail that a failing seed has printed")
    parser.add_argument("--keep", metavar="NAME", help="with --replay: keep what its cores did in trails/NAME.jsonl")
    parser.add_argument("--digest", action="store_true", help="print the digest of each history")
    parser.add_argument("--shorten", type=int, default=300, metavar="N", help="attempts for a shorter trail")
    parser.add_argument("--protocol", type=int, choices=(1, 2), help="producers alone, with this protocol")
    options = parser.parse_args()
    if options.protocol is not None:
        return producers(options)
    if options.replay is not None:
        if options.keep is not None:
            print(f"kept in {keep(options.replay, options.keep)}")
        again = run_trail(read(options.replay))
        print(report(again, None) if again.error else "all invariants hold on this trail")
        return int(again.error is not None)
    began_s, failing = time.monotonic(), []
    seeds = range(options.first, options.first + options.seeds)
    for done, (seed, number, digest) in enumerate(outcomes(seeds, options.jobs), 1):
        if options.digest:
            print(seed, digest)
        if number is not None:
            failing.append(seed)
            failed = run_seed(seed)
            print(report(shortest(failed, run_trail, options.shorten), seed, len(failed.trail)), flush=True)
        if done % 100 == 0 or done == options.seeds:
            rate = done / (time.monotonic() - began_s)
            print(f"{done} seeds, {len(failing)} failing, {rate:.1f} seeds/s", file=sys.stderr, flush=True)
    if failing:
        print(f"failing seeds: {' '.join(map(str, failing))}")
    return int(bool(failing))


def producers(options: argparse.Namespace) -> int:
    """Producers on connections that deliver late; a failing seed is reported with its shortest trail."""

    def repeat(trail: list[int]) -> producer_runs.ProducerRun:
        return producer_runs.run_trail(trail, options.protocol)

    if options.replay is not None:
        if options.keep is not None:
            print(f"kept in {keep(options.replay, options.keep, protocol=options.protocol)}")
        again = repeat(read(options.replay))
        print(again.story() if again.error else "all invariants hold on this trail")
        return int(again.error is not None)
    seeds = range(options.first, options.first + options.seeds)
    began_s, failing = time.monotonic(), 0
    for seed in seeds:
        failed = producer_runs.run_seed(seed, options.protocol)
        if failed.error is not None:
            failing += 1
            short = shortest(failed, repeat, options.shorten)
            print(f"seed {seed}: --protocol {options.protocol} --replay '{written(short.trail)}'\n{short.story()}")
    rate = len(seeds) / (time.monotonic() - began_s)
    print(f"{len(seeds)} seeds, {failing} failing, {rate:.1f} seeds/s", file=sys.stderr)
    return int(failing > 0)


def outcome(seed: int) -> tuple[int, int | None, str]:
    """The seed, the broken invariant (None: all held) and the digest of its history."""
    result = run_seed(seed)
    return seed, result.number, result.digest()


def outcomes(seeds: range, jobs: int) -> Iterator[tuple[int, int | None, str]]:
    """Run the seeds, in their order."""
    if jobs < 2:
        yield from map(outcome, seeds)
        return
    with Pool(jobs) as pool:
        yield from pool.imap(outcome, seeds, chunksize=10)


if __name__ == "__main__":
    sys.exit(main())
