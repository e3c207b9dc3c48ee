"""Probe of Java plugins: what is on the plugin path or installed, what is skipped, and whether there is a Java."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connectx.jvm.java import JavaHome
from connectx.plugins.java.finder import find
from connectx.plugins.java.installed import installed_folder
from connectx.plugins.java.plugin import Found
from connectx.verify.doctor.report import Finding, Status

_TITLE: Final = "Java plugins"


def java_plugins(config: Mapping[str, Any], java: JavaHome | None) -> Finding:
    """Of the settings of a worker."""
    given = config.get("plugin.path")
    folders = [] if given is None else [entry.strip() for entry in str(given).split(",")]
    installed = installed_folder()
    found = find([installed] if given is None and installed.is_dir() else folders)
    return judge(found, has_java=java is not None)


def judge(found: Found, *, has_java: bool) -> Finding:
    """One finding about what a plugin path has."""
    connectors = sum(plugin.kind.is_connector for plugin in found.plugins)
    number = f"{connectors} connectors and {len(found.plugins) - connectors} others"
    if found.refusals:
        more = f" and {len(found.refusals) - 1} more" if len(found.refusals) > 1 else ""
        return Finding(
            _TITLE, Status.LIMITED, number, f"{found.refusals[0]}{more}.", "Correct plugin.path or the plugin."
        )
    if not found.plugins:
        return Finding(_TITLE, Status.OFF, "none", "", "connectx plugins install group:artifact:version")
    if not has_java:
        next_step = "pip install 'connectx[embedded]', or set JAVA_HOME."
        return Finding(_TITLE, Status.LIMITED, number, "They need Java 17 or later, and none was found.", next_step)
    return Finding(_TITLE, Status.OK, number)
