"""The panel's front end as text: one module and one style sheet for the browser, the same in notebooks and on pages."""

from __future__ import annotations

from importlib import resources

from connectx.history.render.shapes import STYLE

_PARTS = ("geometry", "draw", "story", "table", "parts", "flow", "peek", "form", "panel")


def module() -> str:
    """Return the panel as one module without imports, exports and lines that are only a comment."""
    texts = [static(f"{name}.mjs") for name in _PARTS]
    left_out = ("import ", "//", "/**")
    lines = [line for text in texts for line in text.splitlines() if not line.lstrip().startswith(left_out)]
    return "\n".join(line.removeprefix("export ") if not line.startswith("export default") else line for line in lines)


def style() -> str:
    """Return the panel's style sheet."""
    return static("panel.css") + STYLE


def static(name: str) -> str:
    """Return a file of the front end."""
    return (resources.files("connectx_widgets") / "static" / name).read_text(encoding="utf-8")
