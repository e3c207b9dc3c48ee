"""Appearance of the timeline: sizes, shapes, style and legend, shared by all drawings. Pure.

Colour is the connector, form is the state. A shape is SVG text with `{places}` to fill in. `draw` fills them in here;
the panel's page does it with the same table, `LOOK`. Hatches are in currentColor, or the dark hides them.
"""

from __future__ import annotations

from connectx.history.folds.runs import RunState
from connectx.history.folds.worker_states import WorkerState

LANE, BAR = 18, 14
THIN_LANE, THIN = 7, 5
ROW_PAD, ROW_LEAST = 6, 40
BAND_LABELS, AXIS = 18, 22
TRACK, TRACK_PAD = 52, 6
"""Height of a chart below the rows, and the space within it above the highest number."""
CHAR = 6.2
"""Average width of a character in the labels' font: decides where a text fits."""
STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)

SIGNS = {
    WorkerState.STARTING: "◌",
    WorkerState.UP: "●",
    WorkerState.PAUSED: "‖",
    WorkerState.STALLED: "‖",
    WorkerState.CUT_OFF: "╳",
    WorkerState.STOPPING: "○",
    WorkerState.STOPPED: "○",
    WorkerState.KILLED: "✕",
    WorkerState.FAILED: "✕",
}

_BOX = 'x="{x}" y="{y}" width="{width}" height="{height}"'
_AT = 'transform="translate({x} {y})"'
_FENCE, _CROSS = "M-4 -8h8m-4 0v16", "M-5 -5l10 10m-10 0l10 -10"

SHAPES = {
    "starting": f'<rect {_BOX} rx="2" fill="{{colour}}" fill-opacity="0.12" stroke="{{colour}}" stroke-width="1.2"/>',
    "running": f'<rect {_BOX} rx="2" fill="{{colour}}"/>',
    "paused": f'<rect {_BOX} rx="2" fill="{{colour}}" fill-opacity="0.3" stroke="{{colour}}"/>'
    f'<rect {_BOX} rx="2" fill="url(#{{key}}p)" opacity="0.55"/>',
    "failed": f'<rect {_BOX} rx="2" fill="{{colour}}" fill-opacity="0.22" stroke="{{colour}}" stroke-width="1.4"/>'
    f'<svg {_BOX}><svg x="100%" y="50%" overflow="visible"><path class="m" d="M-11 -4l8 8m-8 0l8 -8"/></svg></svg>',
    "zombie": f'<rect {_BOX} rx="2" fill="{{colour}}" fill-opacity="0.35"/>'
    f'<rect {_BOX} rx="2" fill="url(#{{key}}z)" stroke="currentColor" stroke-dasharray="3 2" opacity="0.75"/>',
    "fault": f'<path class="h" fill="currentColor" {_AT} d="M0 -7l7 7l-7 7l-7 -7z"/>',
    "fenced": f'<path class="o" {_AT} d="{_FENCE}"/><path class="m x" {_AT} d="{_FENCE}"/>',
    "aborted": f'<path class="o" {_AT} d="{_CROSS}"/><path class="m" {_AT} d="{_CROSS}"/>',
    "rebalance": f'<rect class="band" {_BOX}/>',
    "everywhere": '<path class="m" d="M{x} {y}v{height}" stroke-dasharray="4 3" opacity="0.6"/>',
}
"""Shapes of run states, of kinds of marks (around their moment), of a rebalance, and of a mark across all workers."""

_MEANING = {
    "starting": "start-up steps of a task: fencing, producer, configuration",
    "running": "the task runs; the thin bar below the tasks is a connector",
    "paused": "the task is paused",
    "failed": "the task failed and waits for a restart",
    "zombie": "the task still runs although it is no longer its worker's",
    "fault": "a fault was injected",
    "fenced": "a write was rejected because a newer task owns the data",
    "aborted": "a transaction was aborted: its records stay invisible",
    "rebalance": "the group assigns its work again",
}

PATTERNS = (
    '<defs><pattern id="{key}z" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5" stroke="currentColor" stroke-width="1.4"/></pattern>'
    '<pattern id="{key}p" width="14" height="8" patternUnits="userSpaceOnUse">'
    '<path d="M3 0V8M6 0V8" stroke="currentColor" stroke-width="1.2"/></pattern></defs>'
)
"""The hatches. Their ids begin with `key`, because one page may hold many drawings."""

STYLE = (
    '.cxt{color:var(--cf);font:11px system-ui,sans-serif}.cxt text{fill:var(--cf)}.cxt text[fill="#000"]{fill:#000}'
    '.cxt text[fill="#fff"]{fill:#fff}.cxt .alt{fill:#7f7f7f;opacity:.09}.cxt .dim{fill:var(--cd)}'
    ".cxt .b{font-weight:600}.cxt .band{fill:var(--cr);opacity:.32}"
    ".cxt .grid{stroke:var(--cd);opacity:.35;stroke-dasharray:1 3}"
    ".cxt .h{stroke:var(--cb);stroke-width:3px;paint-order:stroke;stroke-linejoin:round}"
    ".cxt .m{fill:none;stroke:currentColor;stroke-width:2}.cxt .o{fill:none;stroke:var(--cb);stroke-width:6}"
    ".cxt .x{stroke:var(--cx)}.cxt .line{fill:none;stroke-width:1.6;stroke-linejoin:round}"
    ".cxt .others{stroke:var(--cd)}.cxt .edge{stroke:var(--cd);opacity:.5}"
    ".cxt .guide{stroke:currentColor;stroke-dasharray:2 3;opacity:.7}.cxt .guide.x{stroke:var(--cx)}"
)
"""Of a drawing of class `cxt`; the colours of background, text, dim text, bands and red come from around it."""


def num(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def draw(name: str, key: str = "", colour: str = "", **places: float) -> str:
    """The shape `name` with its places filled in.

    Args:
        name: one of `SHAPES`.
        key: of the drawing's patterns.
        colour: of the connector.
        places: x, y, width and height, as far as the shape has them.
    """
    return SHAPES[name].format(key=key, colour=colour, **{place: num(value) for place, value in places.items()})


def legend(key: str) -> list[dict[str, str]]:
    """Each shape with `name`, `meaning` and `sample`, which is 22 wide and 16 high."""
    return [{"name": name, "meaning": meaning, "sample": _sample(name, key)} for name, meaning in _MEANING.items()]


def _sample(name: str, key: str) -> str:
    if name in tuple(RunState):
        return draw(name, key, "#56b4e9", x=1, y=3, width=20, height=10)
    if name == "rebalance":
        return draw(name, x=4, y=0, width=12, height=16)
    return draw(name, x=11, y=8)


LOOK = {
    "lane": LANE,
    "bar": BAR,
    "thinLane": THIN_LANE,
    "thin": THIN,
    "rowPad": ROW_PAD,
    "top": BAND_LABELS,
    "axis": AXIS,
    "char": CHAR,
    "steps": STEPS_S,
    "track": TRACK,
    "trackPad": TRACK_PAD,
    "shapes": SHAPES,
    "legend": legend("{key}"),
    "patterns": PATTERNS,
}
"""What the panel's page draws with: the same sizes and shapes, with their places to fill in."""
