"""Errors of the demo."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class DemoError(ConnectxError):
    """The demo cannot continue; the message names the step."""


class DemoDataError(DemoError):
    """The demo's input file is missing."""
