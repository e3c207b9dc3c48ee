"""The result of an audit: findings with evidence, consequence and remedy, as text, HTML and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from enum import StrEnum
from html import escape
from typing import TYPE_CHECKING

from connectx.extras import require
from connectx.history.wording import plural
from connectx.values import Value
from connectx.views import html_card, html_facts

if TYPE_CHECKING:
    import pandas as pd


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"  # rows are lost, repeated or delayed, or work has stopped
    WARNING = "warning"  # the same will happen after another event
    NOTE = "note"  # works as set, and is often unexpected


_SIGNS: Mapping[Severity, str] = {Severity.ERROR: "✕", Severity.WARNING: "▲", Severity.NOTE: "i"}


class Finding(Value):
    """One thing that an audit found.

    Attributes:
        code: stable, for programs, like "failed_task".
        subject: what it is about: a task, a connector, a worker, a topic, a setting.
        evidence: what was seen, without secrets.
        consequence: what it leads to.
        remedy: what to do.
        cluster: which cluster; several by comma.
    """

    code: str
    severity: Severity
    subject: str
    evidence: str
    consequence: str
    remedy: str
    cluster: str = ""

    def __str__(self) -> str:
        head = f"{_SIGNS[self.severity]} {self.severity.upper()} {self.code}: {self.subject}"
        lines = [("seen", self.evidence), ("so", self.consequence), ("do", self.remedy)]
        return "\n".join([head, *(f"    {label:<5}{text}" for label, text in lines)])

    def _repr_html_(self) -> str:
        return html_card("Finding of an audit", {}, _html(self))


class Audit(Value):
    """The findings of an audit, worst first; iterate, index by position.

    Attributes:
        clusters: names of what was looked at.
        unseen: what could not be inspected.
    """

    findings: tuple[Finding, ...]
    clusters: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def worst(self) -> Severity | None:
        """The worst severity that was found, None when nothing was."""
        return self.findings[0].severity if self.findings else None

    def of(self, code: str) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.code == code)

    def to_pandas(self) -> pd.DataFrame:
        """One row per finding: code, severity, subject, evidence, consequence, remedy, cluster (strings)."""
        require("A data frame of findings", "notebook", "pandas")
        import pandas as pd

        columns = ["code", "severity", "subject", "evidence", "consequence", "remedy", "cluster"]
        rows = [{**asdict(finding), "severity": finding.severity.value} for finding in self.findings]
        return pd.DataFrame(rows, columns=columns, dtype=object)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __getitem__(self, index: int) -> Finding:
        return self.findings[index]

    @property
    def summary(self) -> str:
        """One line: how many findings of which severity."""
        counts = [(one, sum(f.severity is one for f in self.findings)) for one in Severity]
        summary = ", ".join(plural(count, severity.value) for severity, count in counts if count)
        return f"Audit of {', '.join(self.clusters)}: {summary or 'nothing found'}"

    def __repr__(self) -> str:
        return "\n".join([self.summary, *map(str, self.findings), *(f"not inspected: {one}" for one in self.unseen)])

    def _repr_html_(self) -> str:
        unseen = {f"not inspected {number}": text for number, text in enumerate(self.unseen, 1)}
        return html_card(self.summary, {}, *map(_html, self.findings), html_facts(unseen))


def _html(finding: Finding) -> str:
    sign, facts = (
        _SIGNS[finding.severity],
        {
            "seen": finding.evidence,
            "so": finding.consequence,
            "do": finding.remedy,
            **({"cluster": finding.cluster} if finding.cluster else {}),
        },
    )
    head = f"{sign} {finding.severity} <code>{escape(finding.code)}</code> {escape(finding.subject)}"
    is_open = " open" if finding.severity is Severity.ERROR else ""
    return f"<details{is_open}><summary>{head}</summary>{html_facts(facts)}</details>"
