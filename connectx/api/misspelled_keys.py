"""Warns of keys of a connector's configuration that have no effect and resemble keys that have."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from connectx.errors.base import ConnectxError
from connectx.model.spelling import known_keys, without_effect

if TYPE_CHECKING:
    from connectx.rest.client import RestClient


def warn_of_misspelled(client: RestClient, connector: str, config: Mapping[str, str | None], level: int) -> None:
    """Warn of each such key, at the place of the call that is `level` callers away.

    No worker may answer any more, and the connector has its configuration by then: there is no warning in that case.
    """
    try:
        known = known_keys(client.validate({**config, "name": connector}))
    except ConnectxError:
        return
    for sentence in without_effect(config.keys(), known):
        warnings.warn(sentence, stacklevel=level + 1)
