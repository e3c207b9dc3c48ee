"""The report of the doctor: findings with reason and next step, as text, static HTML and pandas. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from connectx.extras import require
from connectx.values import Value
from connectx.views import Row, Shown, html_card, html_table, masked_text

if TYPE_CHECKING:
    import pandas as pd


class Status(StrEnum):
    """OK works; LIMITED works, but not all of it; OFF does not, and nothing else needs it; BROKEN does not, and a
    cluster needs it; UNKNOWN could not be looked at."""

    OK = "ok"
    LIMITED = "limited"
    OFF = "off"
    BROKEN = "broken"
    UNKNOWN = "unknown"


_SIGNS = {Status.OK: "●", Status.LIMITED: "◐", Status.OFF: "○", Status.BROKEN: "✕", Status.UNKNOWN: "?"}


class Finding(Shown, Value):
    """One check: what was found, what follows if it is not simply fine, and what to type."""

    name: str
    status: Status
    found: str
    why: str = ""
    next_step: str = ""

    def row(self) -> Row:
        shown = f"{_SIGNS[self.status]} {self.status}"
        return {"what": self.name, "state": shown, "found": self.found, "why": self.why, "next": self.next_step}

    def lines(self, width: int) -> list[str]:
        """As lines of text, names padded to `width`."""
        indent = " " * (width + 4)
        head = f"{_SIGNS[self.status]} {self.name.ljust(width)}  {self.found}".rstrip()
        more = [f"{indent}{self.why}"] if self.why else []
        return [head, *more, *([f"{indent}next: {self.next_step}"] if self.next_step else [])]


@dataclass(frozen=True, repr=False)
class Checkup:
    """What `cx.doctor()` returns.

    Attributes:
        findings: what there is: Python, Java, packages, disk, the session, Kafka.
        abilities: what can be done with it.
    """

    findings: Sequence[Finding]
    abilities: Sequence[Finding]

    @property
    def ok(self) -> bool:
        """Whether the cluster that was asked about can run: nothing that it needs is broken."""
        return not any(found.status is Status.BROKEN for found in (*self.findings, *self.abilities))

    @property
    def summary(self) -> str:
        every = [*self.findings, *self.abilities]
        broken = [found.name for found in every if found.status is Status.BROKEN]
        if broken:
            return f"A cluster cannot run here yet: {', '.join(broken)}."
        off = [found.name for found in self.abilities if found.status in (Status.OFF, Status.LIMITED)]
        return "A cluster can run here" + (f"; off or limited: {', '.join(off)}." if off else ".")

    def __getitem__(self, name: str) -> Finding:
        """A finding or an ability by its name."""
        return {found.name: found for found in (*self.findings, *self.abilities)}[name]

    def as_json(self) -> dict[str, Any]:
        """For programs: ok, summary, and rows of `works` and `here`."""
        works, here = ([asdict(found) for found in part] for part in (self.abilities, self.findings))
        return {"ok": self.ok, "summary": self.summary, "works": works, "here": here}

    def to_pandas(self) -> pd.DataFrame:
        """A row for each: part ("here" or "works"), name, status, found, why, next_step."""
        require("A data frame of findings", "notebook", "pandas")
        import pandas as pd

        parts = (("works", self.abilities), ("here", self.findings))
        columns = ["part", "name", "status", "found", "why", "next_step"]
        rows = [[part, f.name, str(f.status), f.found, f.why, f.next_step] for part, each in parts for f in each]
        return pd.DataFrame(rows, columns=columns, dtype=object)

    def __repr__(self) -> str:
        width = max((len(found.name) for found in (*self.findings, *self.abilities)), default=0)
        works = [line for found in self.abilities for line in found.lines(width)]
        here = [line for found in self.findings for line in found.lines(width)]
        return masked_text("\n".join([self.summary, "", "What works", *works, "", "What is here", *here]))

    def _repr_html_(self) -> str:
        tables = [html_table([f.row() for f in self.abilities], "What works")]
        tables.append(html_table([f.row() for f in self.findings], "What is here"))
        return html_card(f"connectx doctor: {self.summary}", {}, *tables)
