"""What a page may ask: configurations, traces, connector classes, fields, checks, data. Answers are plain JSON."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from connectx.errors.rest import ConnectorNotFoundError
from connectx.history.folds.tracks import busiest
from connectx.views import masked, masked_text
from connectx_widgets import peeks

if TYPE_CHECKING:
    from connectx.api.connect_cluster import ConnectCluster
    from connectx.rest.bodies import Plugin

Config = Mapping[str, str | None]


HIDDEN = "[hidden]"
SERIES = 12
"""Connectors whose throughput and lag a page gets from before it was opened."""


def with_secrets(running: Config, proposed: Config) -> dict[str, str | None]:
    """What a form sends back, with the secrets that it was shown as hidden, also where what stands around them (the
    host of a URL, for example) was changed."""
    hidden = masked(running)
    return {key: _with_secrets(running.get(key), hidden.get(key), value) for key, value in proposed.items()}


def _with_secrets(running: str | None, shown: str | None, value: str | None) -> str | None:
    if running is None or shown is None or value is None or HIDDEN not in shown:
        return value
    around, rest = shown.split(HIDDEN), value.split(HIDDEN)
    found = re.fullmatch("(.*)".join(map(re.escape, around)), running, re.DOTALL)
    if found is None or len(rest) != len(around):
        return value
    return rest[0] + "".join(secret + text for secret, text in zip(found.groups(), rest[1:], strict=True))


def difference(running: Config, proposed: Config) -> list[dict[str, str | None]]:
    """Keys whose value would change: `key`, `before`, `after`, None for missing; secrets hidden."""
    before, after = masked(running), masked(proposed)
    changed = [key for key in sorted({*running, *proposed}) if running.get(key) != proposed.get(key)]
    same = {key for key in changed if before.get(key) == after.get(key)}  # another secret, which looks the same
    return [
        {
            "key": key,
            "before": before.get(key),
            "after": f"{after.get(key)}, another one" if key in same else after.get(key),
        }
        for key in changed
    ]


def answer(
    cluster: ConnectCluster,
    message: Mapping[str, Any],
    failures: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Any:
    """The answer to `{"question": ..., ...}`.

    `failures` maps connectors to the traces of what has failed. They come from the history, because the status that
    REST returns may be older. Raises what the public call of the question raises, KeyError for other questions.
    """
    match message:
        case {"question": "classes"}:
            return _short_names(cluster.plugins())
        case {"question": "validate", "connector": str(name), "config": dict(config), "editing": bool(editing)}:
            running = dict(cluster[name].config) if editing else _running(cluster, name)
            proposed = with_secrets(running, config) if editing else dict(config)
            result = cluster.validate({**proposed, "name": name or "unnamed"})
            diff = difference(running, {**proposed, "name": name}) if running else []
            return {"validation": _without_values(result), "diff": diff, "exists": bool(running)}
        case {"question": "details", "connector": str(name)}:
            status = cluster.status(name)
            lost = [part["lost"] for part in (status["connector"], *status["tasks"]) if "lost" in part]
            return {
                "config": masked(cluster[name].config),
                "lost": list(dict.fromkeys(lost)),
                "traces": [{"who": who, "trace": trace} for who, trace in failures.get(name, {}).items()],
            }
        case {"question": "series"}:
            samples = cluster.samples()
            return {} if samples is None else busiest(samples, time.time_ns() // 1_000_000, SERIES)
        case {"question": "peek", "name": str(name), "filter": str(text)}:
            return peeks.peek(cluster, name, text)
        case {"question": "letters", "name": str(name), "filter": str(text)}:
            return peeks.letters(cluster, name, text)
        case {"question": "letter", "name": str(name), "partition": int(partition), "offset": int(offset)}:
            return peeks.letter(cluster, name, partition, offset)
        case _:
            raise KeyError(f"panels do not ask {message.get('question')!r}")


def _without_values(validation: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a validation that a form needs. It has the values itself, except secrets. Errors may
    quote a value, and with it the password in a URL."""
    entries = [
        {**one, "value": {**one["value"], "value": None, "errors": [masked_text(e) for e in one["value"]["errors"]]}}
        for one in validation["configs"]
    ]
    return {**validation, "configs": entries}


def _running(cluster: ConnectCluster, name: str) -> dict[str, str | None]:
    """The configuration of a connector that may not exist; empty when it does not."""
    try:
        return dict(cluster[name].config) if name else {}
    except ConnectorNotFoundError:
        return {}


def _short_names(plugins: list[Plugin]) -> list[dict[str, str]]:
    """Class and type, the class by its simple name where that is enough to find it."""
    simple = [plugin["class"].rpartition(".")[2] for plugin in plugins]
    named = zip(simple, plugins, strict=True)
    return [
        {"class": short if simple.count(short) == 1 else plugin["class"], "type": plugin["type"]}
        for short, plugin in named
    ]
