"""Count, sum and extremes of numbers, for metrics. Decides nothing; keeps no number itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Summary:
    """Count, sum and extremes of numbers, such as milliseconds."""

    count: int = 0
    total: float = 0
    largest: float = 0
    smallest: float = 0

    def add(self, number: float) -> None:
        self.smallest = number if self.count == 0 else min(self.smallest, number)
        self.largest = max(self.largest, number)
        self.count += 1
        self.total += number

    @property
    def average(self) -> float:
        """0 when there is none."""
        return self.total / self.count if self.count else 0.0

    def metrics(self, name: str) -> dict[str, float]:
        """As live numbers of a task: `<name>_max`, `<name>_avg`."""
        return {f"{name}_max": self.largest, f"{name}_avg": self.average}
