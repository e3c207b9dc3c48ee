"""Text and HTML forms that the public objects share: tables, cards, states; and what hides secrets in them.

Pure functions of plain values, below everything else, so that every object can have its forms. The HTML has no script
and no style sheet, takes its colours from the page (light or dark) and stays readable where inline styles are dropped,
as on GitHub. Everything is escaped, and passwords in URLs are hidden wherever they stand. `Shown` gives a class its
two forms out of one description.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, TypeVar

Row = Mapping[str, object]
T = TypeVar("T")

_SIGNS: Mapping[str, str] = {  # of Kafka Connect's states, and of LOST
    "RUNNING": "●",
    "PAUSED": "‖",
    "FAILED": "✕",
    "STOPPED": "■",
    "RESTARTING": "↻",
    "UNASSIGNED": "○",
    "DESTROYED": "·",
    "LOST": "◌",
}
_SECRET_WORD: Final = (
    r"pass(?:word|wd|phrase|code)|(?<![a-z])(?:pass|pwd|pw|sig)(?![a-z])|secret|token|credentials?"
    r"|(?:api|account|access|sas|private|signing|encryption)[._ -]?key(?![._-]?id)|signature|connection[._-]?string"
)
_SECRET: Final = re.compile(
    rf"{_SECRET_WORD}|jaas|keystore[._-]?key|user[._-]?info|authorization|cookie", re.IGNORECASE
)
"""Names of settings whose values are secrets, as far as names show it."""

_NAMED: Final = re.compile(
    rf"""((?:{_SECRET_WORD})["']?\s?(?:=>?|(?<=["']):)\s?)"""
    r"""(?!\$\{[^{}]*\}(?:[\s&;,"']|$))("(?:[^"\\]|\\.)*(?:"|$)|'(?:[^'\\]|\\.|'')*(?:'|$)|[^\s&;,"']+)""",
    re.IGNORECASE | re.DOTALL,
)
"""`password=x` of URLs, libpq, JAAS and Java, `"password": "x"` of JSON and Python; placeholders stay."""

_HEADER: Final = re.compile(
    r"""(authorization["']?\s?[:=]\s?["']?(?:(?:basic|bearer|digest|negotiate|aws4-hmac-sha256)\s)?"""
    r"""|(?<![\w-])bearer\s(?=[\w.~+/=-]*\d))[^\s"',]+""",
    re.IGNORECASE,
)
_PRIVATE_KEY: Final = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)", re.DOTALL)
_WORD: Final = re.compile(r"[^\s\"'<>]*")
_PORT: Final = re.compile(r"\d{1,5}(?:[/?#,]|$)")
HIDDEN: Final = "[hidden]"
"""What is shown in the place of a secret."""

_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys, or that change the order of others; not the tabulator and the line feed."""

_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0"


def visible(text: str) -> str:
    """Text for a terminal, with control characters as JSON writes them: no name or value of others moves the cursor."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def shown_state(state: str) -> str:
    """A state as a sign and its word, so that it is recognised without colour."""
    sign = _SIGNS.get(state)
    return f"{sign} {state}" if sign else state


def text_table(rows: Sequence[Row]) -> str:
    """Rows as aligned columns under their headings, those of the first row. Empty without rows."""
    if not rows:
        return ""
    headings = list(rows[0])
    lines = [
        [visible(heading) for heading in headings],
        *([_cell(row.get(heading)) for heading in headings] for row in rows),
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def text_facts(facts: Mapping[str, object]) -> str:
    """Names and values, one pair a line."""
    width = max((len(name) for name in facts), default=0)
    return "\n".join(f"{visible(name).ljust(width)}  {_cell(value)}".rstrip() for name, value in facts.items())


def html_table(rows: Sequence[Row], caption: str = "") -> str:
    """Rows as an HTML table under their headings, those of the first row. Empty without rows."""
    if not rows:
        return ""
    headings = list(rows[0])
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(heading)}</th>' for heading in headings)
    body = "".join(f"<tr>{_html_cells(row.get(heading) for heading in headings)}</tr>" for row in rows)
    title = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_facts(facts: Mapping[str, object]) -> str:
    """Names and values as a table of two columns."""
    lines = (
        f'<tr><th scope="row" style="{_CELL}">{escape(name)}</th>{_html_cells([value])}</tr>'
        for name, value in facts.items()
    )
    return f"<table><tbody>{''.join(lines)}</tbody></table>" if facts else ""


def html_details(summary: str, text: str) -> str:
    """Long text, such as a trace, folded below a line that opens it without a script."""
    preformatted = f'<pre style="white-space:pre-wrap">{escape(masked_text(text))}</pre>'
    return f"<details><summary>{escape(summary)}</summary>{preformatted}</details>"


def html_list(summary: str, lines: Sequence[str]) -> str:
    """Sentences folded below a line that opens them without a script. Empty without sentences."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<details><summary>{escape(summary)}</summary><ul>{items}</ul></details>" if lines else ""


def html_card(title: str, facts: Mapping[str, object], *parts: str) -> str:
    """A heading, facts, and parts that are HTML already."""
    inner = "".join([f"<strong>{escape(title)}</strong>", html_facts(facts), *parts])
    return f'<div style="border-left:3px solid currentColor;padding-left:10px">{inner}</div>'


def _cell(value: object) -> str:
    return "" if value is None else visible(" ".join(masked_text(str(value)).split()))


def _html_cells(values: Iterable[object]) -> str:
    return "".join(
        f'<td style="{_CELL}">{escape("" if value is None else masked_text(str(value)))}</td>' for value in values
    )


def masked(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration fit for logs and text forms: secrets in values, and values of secret keys, are `[hidden]`."""

    def shown(name: str, value: Any) -> Any:
        is_headers = name == "headers" and isinstance(value, str)  # HttpSink's; those of records are no text
        if value and (is_headers or _SECRET.search(name)):
            return HIDDEN
        return masked_text(value) if isinstance(value, str) else value

    return {name: shown(name, value) for name, value in config.items()}


def masked_text(text: str) -> str:
    """Text, such as a trace, with secrets `[hidden]`: in URLs, after their names, in headers, and private keys as PEM.

    Takes time in proportion to the text, whatever it is.
    """
    if "=" not in text and ":" not in text and " " not in text:
        return text
    shown = _NAMED.sub(rf"\1{HIDDEN}", _without_logins(text))
    return _PRIVATE_KEY.sub(rf"\1{HIDDEN}", _HEADER.sub(rf"\1{HIDDEN}", shown))


def _without_logins(text: str) -> str:
    """Text without the passwords of `scheme://user:password@host`, which may have an @ themselves."""
    first, *rest = text.split("://")
    for at, part in enumerate(rest):
        found = _WORD.match(part)
        word = found.group() if found is not None else ""
        before_query = word.partition("?")[0]
        end = (before_query if "@" in before_query else word).rfind("@")
        begin = word.find(":")
        if 0 <= begin < end and not _PORT.match(word[begin + 1 :]):
            rest[at] = f"{part[: begin + 1]}{HIDDEN}{part[end:]}"
    return "://".join([first, *rest])


@dataclass(frozen=True, slots=True)
class Form:
    """What an object shows: a title, facts, tables, and long texts folded below a summary."""

    title: str
    facts: Mapping[str, object] = field(default_factory=dict)
    tables: Sequence[Sequence[Row]] = ()
    details: Sequence[tuple[str, str]] = ()

    @property
    def text(self) -> str:
        """For terminals: a line of facts, then the tables."""
        facts = ", ".join(f"{name} {_cell(value)}".strip() for name, value in self.facts.items() if value is not None)
        head = f"{self.title}: {facts}" if facts else self.title
        return "\n".join([visible(head), *(text_table(table) for table in self.tables if table)])

    @property
    def html(self) -> str:
        """For notebooks: a card."""
        tables = (html_table(table) for table in self.tables)
        return html_card(self.title, self.facts, *tables, *(html_details(*detail) for detail in self.details))


class Shown:
    """Gives a class its text and its HTML form. A dataclass needs nothing more; others define `_shown`."""

    __slots__ = ()

    def _shown(self) -> Form:
        return Form(type(self).__name__, fields_of(self))

    def __repr__(self) -> str:
        return self._shown().text

    def _repr_html_(self) -> str:
        return self._shown().html


class Listed(list[T]):
    """A list of objects that shows itself as a table. What is cut out of it is a plain list.

    Args:
        items: its members; each has a `row()`, is a mapping, or is a dataclass.
        title: what they are.
    """

    def __init__(self, items: Iterable[T], title: str) -> None:
        super().__init__(items)
        self._title = title

    def _shown(self) -> Form:
        return Form(f"{len(self):,} {self._title}", {}, [[_row(item) for item in self]])

    def __repr__(self) -> str:
        return self._shown().text

    def _repr_html_(self) -> str:
        return self._shown().html


def fields_of(value: Any) -> dict[str, object]:
    """Fields of a dataclass as facts: secrets hidden, data shown by its size instead of its content."""
    named = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.repr}
    return {name: brief(field) for name, field in masked(named).items() if not name.startswith("_")}


def brief(value: object) -> object:
    """A value as a fact. A table is shown by its size, a DataFrame by its name, because reading would evaluate it."""
    rows = getattr(value, "num_rows", None)
    if isinstance(rows, int):
        return f"{rows:,} rows of {', '.join(getattr(value, 'column_names', ()))}"
    if type(value).__module__.startswith("pyspark"):
        return type(value).__name__
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name} {brief(item)}" for name, item in masked({str(n): v for n, v in value.items()}).items()
        )
    if isinstance(value, (list, tuple)):
        return ", ".join(str(brief(item)) for item in value)
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return value


def plugin_form(plugin: Any, kind: str) -> Form:
    """A connector, task, transformation or predicate of any author: its class and its settings, once it has some."""
    settings = masked({str(name): value for name, value in getattr(plugin, "settings", {}).items()})
    return Form(f"{type(plugin).__name__} ({kind})", {name: brief(value) for name, value in settings.items()})


def _row(item: Any) -> Row:
    if isinstance(item, Mapping):
        return {str(name): brief(value) for name, value in masked(item).items()}
    if hasattr(item, "row"):
        return dict(item.row())
    return fields_of(item)


def gist(trace: str, limit: int = 200) -> str:
    """The line of a trace with the error: a Python traceback's last exception, else the first line.

    Ends without a full stop, so that a sentence can continue.
    """
    lines = [line for line in trace.splitlines() if line.strip()]
    if lines and lines[0].startswith("Traceback"):
        lines = [line for line in lines if not line[0].isspace() and ": " in line][-1:] or lines[-1:]
    line = masked_text(lines[0].strip()) if lines else ""  # before it is cut: half a URL is not recognised
    return (line if len(line) <= limit else f"{line[: limit - 1]}…").rstrip(".")
