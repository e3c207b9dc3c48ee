"""Programs that tests need, and that neither Python packages nor `make setup` bring: a browser, a database and Node.

    python -m tests.support.systems mariadb chromium

installs Debian's packages of those that are not on PATH, if it may, and otherwise reports how to get them. Tests whose
system is missing are skipped, and the end of a run names it; with CI in the environment they fail.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pytest


@dataclass(frozen=True, slots=True)
class System:
    """A program from outside.

    Attributes:
        name: for people.
        programs: its names on PATH, of which the first that is found is used.
        packages: Debian's, which bring it.
    """

    name: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]

    def program(self) -> str | None:
        """The path of its program, None if it is not there."""
        places = f"{os.environ.get('PATH', '')}:/usr/sbin"
        return next((path for name in self.programs if (path := shutil.which(name, path=places))), None)

    def missing(self) -> str:
        """The sentence that reports that it is not there."""
        return f"{self.name} is not on PATH: install Debian's package {self.packages[0]}"

    def require(self) -> str:
        """The path of its program. Without it the test is skipped, or fails in CI."""
        program = self.program()
        if program is None:
            assert "CI" not in os.environ, self.missing()
            pytest.skip(self.missing())
        return program


CHROMIUM: Final = System(
    "Chromium", ("chromium", "chromium-browser", "google-chrome"), ("chromium", "fonts-dejavu-core")
)
MARIADB: Final = System("MariaDB", ("mariadbd",), ("mariadb-server",))
NODE: Final = System("Node", ("node",), ("nodejs",))
SYSTEMS: Final[Mapping[str, System]] = {"chromium": CHROMIUM, "mariadb": MARIADB, "node": NODE}


def install(systems: Sequence[System]) -> None:
    """Install the packages of systems by apt-get, if it is there and this user is root or CI; else print how."""
    packages = [package for system in systems for package in system.packages]
    apt_get = shutil.which("apt-get")
    sudo = ("sudo", "-n") if os.geteuid() and "CI" in os.environ else ()  # on a person's machine a person decides
    if apt_get is None or (os.geteuid() and not sudo):
        print(f"{', '.join(system.name for system in systems)}: as root, run: apt-get install {' '.join(packages)}")
        return
    print(f"Installing {' '.join(packages)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    options = ("-y", "-qq", "--no-install-recommends")
    for command in (("update", "-qq"), ("install", *options, *packages)):
        with suppress(FileNotFoundError):  # sudo
            subprocess.run([*sudo, apt_get, *command], env=environment, stdout=subprocess.DEVNULL, check=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Bring the named systems; 1 if one is missing in CI, where its tests would fail."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.systems", description=__doc__)
    parser.add_argument("names", nargs="+", choices=list(SYSTEMS))
    wanted = [SYSTEMS[name] for name in parser.parse_args(arguments).names]
    if missing := [system for system in wanted if system.program() is None]:
        install(missing)
    missing = [system for system in missing if system.program() is None]
    for system in missing:
        print(f"{system.missing()}. Its tests {'fail' if 'CI' in os.environ else 'are skipped'}.", file=sys.stderr)
    return int(bool(missing) and "CI" in os.environ)


if __name__ == "__main__":
    sys.exit(main())
