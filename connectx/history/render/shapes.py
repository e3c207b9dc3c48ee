"""The shapes of the timeline's drawing: bars by state, marks, hatches, style, and the legend made of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from connectx.history.folds.runs import RunState
from connectx.history.render.timeline import MarkKind

_RED, _RED_DARK = "#c4001a", "#ff7a85"


def num(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def tag(name: str, body: str, **attributes: object) -> str:
    """An element; `class_` is class, other underscores are hyphens, attributes that are None are left out."""
    text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{text}>{body}</{name}>" if body else f"<{name}{text}/>"


def style() -> str:
    """Theme: Jupyter's variables where they are, the reader's colour scheme elsewhere."""
    light = _variables("#fff", "#1b1b1b", "#666", "#f4f4f6", "#8b8b99", _RED)
    dark = _variables("#1e1e1e", "#ececec", "#a5a5a5", "#272727", "#9a9aae", _RED_DARK)
    return (
        f"<style>.cxt{{{light};color:var(--f);font:11px system-ui,sans-serif}}"
        f"@media(prefers-color-scheme:dark){{.cxt{{{dark}}}}}"
        ".cxt text{fill:var(--f)}.cxt text[fill='#000']{fill:#000}.cxt text[fill='#fff']{fill:#fff}"
        ".cxt .bg{fill:var(--b)}.cxt .alt{fill:var(--a)}.cxt .dim{fill:var(--d)}.cxt .b{font-weight:600}"
        ".cxt .band{fill:var(--r);opacity:.32}.cxt .grid{stroke:var(--d);opacity:.35;stroke-dasharray:1 3}"
        ".cxt .h{stroke:var(--b);stroke-width:3px;paint-order:stroke;stroke-linejoin:round}"
        ".cxt .m{fill:none;stroke:currentColor;stroke-width:2}.cxt .o{fill:none;stroke:var(--b);stroke-width:6}"
        ".cxt .x{stroke:var(--x)}</style>"
    )


def _variables(background: str, text: str, dim: str, alternate: str, band: str, red: str) -> str:
    return (
        f"--b:var(--jp-layout-color1,{background});--f:var(--jp-content-font-color1,{text});"
        f"--d:var(--jp-content-font-color2,{dim});--a:var(--jp-layout-color2,{alternate});--r:{band};--x:{red}"
    )


def patterns(key: str) -> str:
    """The hatches of zombie and paused bars, in currentColor; ids begin with `key`, one page may hold many drawings."""
    hatch = tag("path", "", d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5", stroke="currentColor", stroke_width="1.4")
    bars = tag("path", "", d="M3 0V8M6 0V8", stroke="currentColor", stroke_width="1.2")
    return tag(
        "defs",
        tag("pattern", hatch, id=f"{key}z", width=6, height=6, patternUnits="userSpaceOnUse")
        + tag("pattern", bars, id=f"{key}p", width=14, height=8, patternUnits="userSpaceOnUse"),
    )


def state_bar(state: RunState, x: float, y: float, width: float, height: float, fill: str, key: str) -> str:
    """A bar whose form is the state: solid, outlined, pale with bars, pale with a cross, faint and hatched."""
    box = {"x": num(x), "y": num(y), "width": num(width), "height": num(height), "rx": 2}
    match state:
        case RunState.RUNNING:
            return tag("rect", "", **box, fill=fill)
        case RunState.STARTING:
            inner = {**box, "x": num(x + 0.6), "y": num(y + 0.6), "height": num(height - 1.2)}
            inner["width"] = num(max(width - 1.2, 0.5))
            return tag("rect", "", **inner, fill=fill, fill_opacity="0.12", stroke=fill, stroke_width="1.2")
        case RunState.PAUSED:
            pale = tag("rect", "", **box, fill=fill, fill_opacity="0.3", stroke=fill)
            return pale + tag("rect", "", **box, fill=f"url(#{key}p)", opacity="0.55")
        case RunState.FAILED:
            pale = tag("rect", "", **box, fill=fill, fill_opacity="0.22", stroke=fill, stroke_width="1.4")
            arm = min(height / 2 - 2, 5.0)
            if width < 3 * arm:
                return pale
            return pale + tag("path", "", d=_cross(x + width - arm - 3, y + height / 2, arm), class_="m")
        case RunState.ZOMBIE:
            faint = tag("rect", "", **box, fill=fill, fill_opacity="0.35")
            edge = {"stroke": "currentColor", "stroke_dasharray": "3 2"}
            return faint + tag("rect", "", **box, fill=f"url(#{key}z)", **edge, opacity="0.75")


def mark(kind: MarkKind, x: float, y: float) -> str:
    """A sign at a moment, with a halo of the background around it."""
    match kind:
        case MarkKind.FAULT:
            return tag("path", "", d=f"M{num(x)} {num(y - 7)}l7 7l-7 7l-7 -7z", class_="h", fill="currentColor")
        case MarkKind.FENCED:
            path = f"M{num(x - 4)} {num(y - 8)}h8m-4 0v16"
            return tag("path", "", d=path, class_="o") + tag("path", "", d=path, class_="m x")
        case MarkKind.ABORTED:
            path = _cross(x, y, 5)
            return tag("path", "", d=path, class_="o") + tag("path", "", d=path, class_="m")


def legend(width: float, key: str) -> Iterator[str]:
    """One line of the real shapes with their names, right-aligned."""
    items: list[tuple[str, RunState | MarkKind | None]] = [
        *((state.value, state) for state in RunState),
        *((kind.value, kind) for kind in MarkKind),
        ("rebalance", None),
    ]
    widths = [24 + 6.2 * len(name) + 12 for name, _ in items]
    x = width - sum(widths) - 4
    for (name, shape), item_width in zip(items, widths, strict=True):
        if isinstance(shape, RunState):
            drawn = state_bar(shape, x, 8, 20, 10, "#56b4e9", key)
        elif isinstance(shape, MarkKind):
            drawn = mark(shape, x + 11, 13)
        else:
            drawn = tag("rect", "", x=num(x + 4), y=5, width=12, height=16, class_="band")
        yield tag("g", tag("title", _MEANING[name]) + drawn + tag("text", name, x=num(x + 24), y=17, class_="dim"))
        x += item_width


_MEANING = {
    "starting": "start-up steps of a task: fencing, producer, configuration",
    "running": "the task runs; the thin bar below the tasks is a connector",
    "paused": "the task is paused",
    "failed": "the task failed and waits for a restart",
    "zombie": "the task still runs although it is no longer its worker's",
    "fault": "a fault was injected",
    "fenced": "a write was rejected because a newer task owns the data",
    "aborted": "a transaction was aborted: nobody sees its records",
    "rebalance": "the group divides its work anew",
}


def _cross(x: float, y: float, arm: float) -> str:
    size = num(2 * arm)
    return f"M{num(x - arm)} {num(y - arm)}l{size} {size}m-{size} 0l{size} -{size}"
