"""Compares how long a tier took with tests/budget.json, and writes that file.

    python -m tests.support.budget check test-all
    python -m tests.support.budget write

`tests.support.tiers` records a run in test-artefacts/TIER.json. A tier and each of its folders may take a quarter
longer than its budget. On a slower machine a budget grows with the time of the calibration loop.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.tiers import ARTEFACTS, ROOT, TIERS

BUDGET: Final = ROOT / "tests" / "budget.json"
TOLERANCE: Final = 1.25
FLOOR_S: Final = 10.0
"""Seconds that any folder may take more: short ones vary by more than a quarter."""


def budget_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """The budget that a recorded run gives: seconds of the tier and of each folder, and the speed."""
    folders: Counter[str] = Counter()
    for file, seconds in run["seconds"].items():
        folders["/".join(file.split("/")[:-1][:3])] += seconds
    return {
        "calibration_s": round(run["calibration_s"], 3),
        "wall_s": round(run["wall_s"]),
        "folders": {folder: round(seconds, 1) for folder, seconds in sorted(folders.items())},
    }


def exceeded(budget: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """What took too long in a recorded run, as sentences."""
    now = budget_of(run)
    scale = max(1.0, now["calibration_s"] / budget["calibration_s"])
    limits = {"the whole tier": budget["wall_s"], **budget["folders"]}
    taken = {"the whole tier": now["wall_s"], **now["folders"]}
    found = []
    for name, seconds in taken.items():
        allowed = scale * limits.get(name, 0.0) * TOLERANCE + FLOOR_S
        if seconds > allowed:
            found.append(f"{name} took {seconds:.0f} s; its budget allows {allowed:.0f} s")
    return found


def main(arguments: Sequence[str] | None = None, artefacts: Path = ARTEFACTS, budget: Path = BUDGET) -> int:
    """Check a tier's last run, or take the last runs of all tiers as the budget; 0 if nothing is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.budget", description=__doc__)
    parser.add_argument("verb", choices=["check", "write"])
    parser.add_argument("tier", nargs="?", choices=TIERS)
    given = parser.parse_args(arguments)
    runs = {tier: json.loads(path.read_text()) for tier in TIERS if (path := artefacts / f"{tier}.json").exists()}
    budgets = json.loads(budget.read_text()) if budget.exists() else {}
    if given.verb == "write":
        budgets |= {tier: budget_of(run) for tier, run in runs.items()}
        budget.write_text(json.dumps(budgets, indent=1) + "\n")
        return 0
    if given.tier not in runs or given.tier not in budgets:
        print(f"NO BUDGET: {given.tier} was not run, or {budget.name} lacks it; run the tier, then `make budget`")
        return 1
    found = exceeded(budgets[given.tier], runs[given.tier])
    print("\n".join(f"OVER BUDGET: {sentence}" for sentence in found) or f"{given.tier} is within its budget")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
