"""Brings Python code to Spark's executors: connectx, and the modules of a connector's classes.

Each package becomes one zip file with a hash of its content as its name, kept in the user's cache. Packages that pip
installed are left out, except connectx: executors need the same ones installed, because a zip file cannot hold native
code. An executor's Python process that has imported a module keeps it until the process ends.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectx.errors.spark import ModuleNotShippedError
from connectx.jvm.cache import cache_dir
from connectx.spark.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN: Final = "connectx"
_CREATED: Final = (1980, 1, 1, 0, 0, 0)  # of all files: the same content gives the same archive


def modules_of(classes: Iterable[type]) -> tuple[str, ...]:
    """Top-level packages and modules of these classes, without those that executors have or get anyway.

    Classes of `__main__`, as in a notebook, are left out: Spark pickles them by value.
    """
    names = {cls.__module__.partition(".")[0] for cls in classes}
    return tuple(sorted(name for name in names - {OWN, "__main__"} if _is_local(name)))


def ship(session: SparkSession, modules: Iterable[str] = ()) -> None:
    """Add connectx and these top-level modules to a session; what it has already is not added again.

    Classic sessions of one process share what is added. It is not put on `sys.path` here, as `addPyFile` would do.

    Raises:
        ModuleNotShippedError: there is no source of a module.
    """
    own = _own_archive(cache_dir())
    others = [archive(name) for name in dict.fromkeys(modules) if name != OWN]
    paths = [own if own.exists() else archive(OWN), *others]
    if is_connect(session):
        session.addArtifacts(*map(str, paths), pyfile=True)
        return
    context: Any = session.sparkContext
    for path in paths:
        if path.name not in context._python_includes:
            context.addFile(str(path))
            context._python_includes.append(path.name)


def archive(module: str) -> Path:
    """The zip file of a top-level package or module; made if its content has changed.

    Raises:
        ModuleNotShippedError: there is no source of it.
    """
    files = sorted(dict(_files(module)).items())  # a folder can be on sys.path twice
    digest = hashlib.sha256()
    for name, path in files:
        content = path.read_bytes()
        digest.update(f"{name} {len(content)} ".encode() + content)
    found = cache_dir() / "shipped" / f"{module}-{digest.hexdigest()[:16]}.zip"
    if not found.exists():
        found.parent.mkdir(exist_ok=True)
        partial = found.with_suffix(f".{os.getpid()}.part")
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as target:
            for name, path in files:
                target.writestr(zipfile.ZipInfo(name, _CREATED), path.read_bytes(), zipfile.ZIP_DEFLATED)
        partial.replace(found)
    return found


@cache
def _own_archive(folder: Path) -> Path:
    """The archive of connectx in a cache, read once: the code that this process runs stays as it was imported."""
    return archive(OWN)


def _files(module: str) -> Iterator[tuple[str, Path]]:
    """Names in the archive, and where the files are."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not (spec.submodule_search_locations or (spec.origin or "").endswith(".py")):
        raise ModuleNotShippedError(module)
    if not spec.submodule_search_locations:
        yield f"{module}.py", Path(spec.origin or "")
    for folder in spec.submodule_search_locations or ():
        for path in Path(folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{module}/{path.relative_to(folder).as_posix()}", path


def _is_local(module: str) -> bool:
    """Whether a module is neither Python's nor installed by pip."""
    if module in sys.stdlib_module_names:
        return False
    spec = find_spec(module)
    origin = "" if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    return bool(origin) and not any(Path(origin).resolve().is_relative_to(folder) for folder in installed)
