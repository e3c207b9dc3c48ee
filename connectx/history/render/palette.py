"""Colours of connectors, and the text colour that can be read on each. Pure.

Okabe and Ito's eight colours are distinguishable with every common form of colour blindness. Black is left out: it is
the text. After seven connectors each hue comes again in a dark and then in a light tone, which differ in lightness for
every eye. A connector's colour is its place in the order of first appearance, so that a
new connector changes no other colour.
"""

from __future__ import annotations

OKABE_ITO = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")

_TONES = ((0, 0.0), (0, 0.45), (255, 0.55))
"""What a hue is mixed with (0 black, 255 white), and the share of that."""


def colour(place: int) -> str:
    """Colour of the connector with this place; it repeats after 21."""
    hue = OKABE_ITO[place % len(OKABE_ITO)]
    towards, share = _TONES[place // len(OKABE_ITO) % len(_TONES)]
    parts = (int(hue[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(part + (towards - part) * share):02x}" for part in parts)


def text_on(background: str) -> str:
    """Black or white, whichever has the higher contrast (WCAG 2 relative luminance) on `background`."""
    luminance = _luminance(background)
    return "#000" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "#fff"


def _luminance(rgb: str) -> float:
    red, green, blue = (int(rgb[start : start + 2], 16) / 255 for start in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
