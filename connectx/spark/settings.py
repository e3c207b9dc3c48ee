"""Spark settings that a user gives instead of a session: what is wrong with them, and which Spark they name."""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from connectx.errors.spark import SparkMasterError, SparkSettingError
from connectx.model.worker_config import as_text
from connectx.values import Value
from connectx.views import masked

MASTER: Final = "spark.master"
REMOTE: Final = "spark.remote"
DRIVER_MEMORY: Final = "spark.driver.memory"
_DEPLOY_MODE: Final = "spark.submit.deployMode"
_OF_THE_LAUNCHER: Final = tuple(f"spark.driver.extra{name}" for name in ("ClassPath", "JavaOptions", "LibraryPath"))

_HOST: Final = r"(\[[0-9a-fA-F:]+\]|[^\s:,/\[\]]+):(\d+)"
_STANDALONE: Final = re.compile(f"spark://{_HOST}(,{_HOST})*")
_IN_THIS_JVM: Final = re.compile(r"local(\[[^]]+\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
_MANAGED: Final = re.compile(r"yarn|k8s://\S+")
_ALIKE: Final = 0.95  # two letters exchanged, or one too few


class SparkSettings(Value):
    """Checked settings.

    Attributes:
        master: `spark.master`; all cores of this machine by default.
        remote: `spark.remote`, the address of a Spark Connect server; then there are no other settings.
        others: every other setting, as text.
    """

    master: str
    remote: str | None
    others: Mapping[str, str]

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> SparkSettings:
        """Check settings, without asking Spark.

        Raises:
            SparkSettingError: with every problem.
        """
        settings = {str(key): as_text(value) for key, value in given.items()}
        problems = [f"{key} does not begin with spark." for key in settings if not key.startswith("spark.")]
        master, remote = settings.pop(MASTER, None), settings.pop(REMOTE, None)
        if master is not None:
            problems += _problems_of_master(master)
        if remote is not None:
            if not remote.startswith("sc://") or not urlsplit(remote).hostname:
                problems.append(f"{REMOTE} is not like sc://host:15002")
            if len(given) > 1:
                problems.append(f"{REMOTE} names a server, which has settings already, so it must be the only key")
        if settings.get(_DEPLOY_MODE, "client") != "client":
            problems.append(f"{_DEPLOY_MODE} must be client: the driver runs beside the workers")
        problems += [
            f"{key} has no effect, because connectx starts the driver's Java itself (spark.jars adds jars)"
            for key in _OF_THE_LAUNCHER
            if key in settings
        ]
        if problems:
            raise SparkSettingError(problems)
        return cls(master or "local[*]", remote, settings)

    @property
    def is_local(self) -> bool:
        """Whether driver and executors run on this machine, as children of this process."""
        return self.remote is None and _IN_THIS_JVM.fullmatch(self.master) is not None

    @property
    def shown(self) -> str:
        """The master or server, without what is secret in its address."""
        return self.master if self.remote is None else f"sc://{urlsplit(self.remote).netloc.rpartition('@')[2]}"

    def require_reachable(self, timeout_s: float = 5.0) -> None:
        """Connect to the master or server, and disconnect. Masters of YARN and Kubernetes are left to Spark.

        Raises:
            SparkMasterError: nothing listens there.
        """
        if self.remote is not None:
            url = urlsplit(self.remote)
            _require_one([(str(url.hostname), url.port or 15002)], REMOTE, self.shown, timeout_s)
        elif self.master.startswith("spark://"):
            found = re.findall(_HOST, self.master.removeprefix("spark://"))
            _require_one([(host.strip("[]"), int(port)) for host, port in found], MASTER, self.shown, timeout_s)

    def require_known(self, known: Collection[str], version: str) -> None:
        """Refuse settings that Spark does not know and that are almost the name of one that it knows.

        Others may be read by a library, as those of a catalog are.

        Raises:
            SparkSettingError: with every one of them.
        """
        problems = [
            f"{key} is not a setting of Spark {version}, but {meant[0]} is"
            for key in self.others
            if key not in known and (meant := difflib.get_close_matches(key, known, 1, _ALIKE))
        ]
        if problems:
            raise SparkSettingError(problems)

    def __repr__(self) -> str:
        return f"SparkSettings({self.shown!r}, {masked(self.others)})"


def _problems_of_master(master: str) -> Iterable[str]:
    if master.startswith("sc://"):
        return [f"{MASTER} is the address of a Spark Connect server, which {REMOTE} takes"]
    if any(pattern.fullmatch(master) for pattern in (_STANDALONE, _IN_THIS_JVM, _MANAGED)):
        return []
    return [f"{MASTER}={master} is not like spark://host:7077, local[4], local-cluster[2,1,1024], yarn or k8s://..."]


def _require_one(places: Iterable[tuple[str, int]], key: str, shown: str, timeout_s: float) -> None:
    cause = ""
    for place in places:
        try:
            socket.create_connection(place, timeout_s).close()
        except OSError as error:
            cause = error.strerror or str(error)
        else:
            return
    raise SparkMasterError(key, shown, cause)
