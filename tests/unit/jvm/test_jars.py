"""The jars come whole and verified, or not at all. A small web server on loopback stands for the Maven repository."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from connectx.errors.machine import ChecksumError, DiskFullError, JarDownloadError, NoNetworkError
from connectx.jvm import ivy, jars
from connectx.jvm.java import find_java


class QuietHandler(SimpleHTTPRequestHandler):
    def handle(self) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # a client that gives up is part of some tests
            super().handle()

    def log_message(self, *_: object) -> None:
        """Tests read errors, not access logs."""


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the URL under which it is served."""
    folder = tmp_path / "repository"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("CONNECTX_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The four smallest jars of Kafka in this user's own cache, by name; they become all of the set."""
    files = {path.name: path for path in jars.fetch(jars.KAFKA, find_java())}
    smallest = tuple(sorted(jars.locked(jars.KAFKA), key=lambda jar: jar.size_bytes)[:4])
    monkeypatch.setattr(jars, "locked", lambda _: smallest)
    return {jar.file: files[jar.file] for jar in smallest}


def offer(folder: Path, content: Callable[[jars.Jar], bytes]) -> None:
    for jar in jars.locked(jars.KAFKA):
        path = folder / jar.organisation.replace(".", "/") / jar.module / jar.revision / jar.file
        path.parent.mkdir(parents=True)
        path.write_bytes(content(jar))


def left_in(cache: Path) -> list[str]:
    """What is in the cache besides lock files."""
    return sorted(
        str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"
    )


def test_every_jar_of_the_lock_has_a_size_and_a_checksum() -> None:
    for name, count in ((jars.KAFKA, 46), (jars.KAFKA_CONNECT, 89)):
        locked = jars.locked(name)
        assert len(locked) == count
        assert all(jar.size_bytes > 0 and len(jar.sha256) == 64 for jar in locked)
        assert len({jar.file for jar in locked}) == count


def test_jars_are_fetched_once_with_progress(
    real: dict[str, Path], cache: Path, repository: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = repository
    offer(folder, lambda jar: real[jar.file].read_bytes())
    monkeypatch.setenv("CONNECTX_MAVEN_REPOSITORY", url)
    recorded: list[tuple[str, int, int]] = []
    files = jars.fetch(jars.KAFKA, find_java(), lambda *step: recorded.append(step))
    assert recorded == [("Fetching kafka jars", done, 4) for done in range(5)]
    assert [path.name for path in files] == [jar.file for jar in jars.locked(jars.KAFKA)]
    jars.verify(jars.KAFKA, files[0].parent)
    recorded.clear()
    assert jars.fetch(jars.KAFKA, find_java(), lambda *step: recorded.append(step)) == files
    assert recorded == []


def test_an_interrupt_ends_the_download(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = [sys.executable, "-c", "print('[SUCCESSFUL ]', flush=True); input()"]
    monkeypatch.setattr(jars, "_ivy_command", lambda *_: endless)
    started: list[subprocess.Popen[str]] = []

    class Recorded(subprocess.Popen[str]):
        def __init__(self, command: list[str], **options: Any) -> None:
            super().__init__(command, **{**options, "stdin": subprocess.PIPE})
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)

    def interrupt(label: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jars.fetch(jars.KAFKA, find_java(), interrupt)
    assert [one.wait(10) for one in started] == [-signal.SIGKILL]
    assert left_in(cache) == []


def test_a_repository_that_cannot_be_reached_is_a_typed_error_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTX_MAVEN_REPOSITORY", "http://127.0.0.1:9/")
    with pytest.raises(NoNetworkError, match="Connection refused") as caught:
        jars.fetch(jars.KAFKA, find_java())
    assert "CONNECTX_MAVEN_REPOSITORY" in caught.value.next_step
    assert left_in(cache) == []


def test_a_host_that_does_not_exist_is_the_same_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTX_MAVEN_REPOSITORY", "http://no-such-host.invalid/")
    with pytest.raises(NoNetworkError, match=r"no-such-host\.invalid"):
        jars.fetch(jars.KAFKA, find_java())
    assert left_in(cache) == []


def test_a_jar_that_the_repository_lacks_is_a_typed_error(
    cache: Path, repository: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTX_MAVEN_REPOSITORY", repository[1])
    with pytest.raises(JarDownloadError, match=r"A jar of kafka could not be fetched.*[Nn]ot found") as caught:
        jars.fetch(jars.KAFKA, find_java())
    assert not isinstance(caught.value, NoNetworkError)
    assert left_in(cache) == []


def test_a_jar_with_other_content_is_refused_and_leaves_nothing(
    cache: Path, repository: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = repository
    offer(folder, lambda jar: b"not the jar")
    monkeypatch.setenv("CONNECTX_MAVEN_REPOSITORY", url)
    with pytest.raises(ChecksumError, match="SHA-256"):
        jars.fetch(jars.KAFKA, find_java())
    assert left_in(cache) == []


def test_a_jar_of_the_wrong_size_in_the_cache_counts_as_missing(cache: Path) -> None:
    folder = jars._folder(jars.KAFKA)
    folder.mkdir(parents=True)
    for jar in jars.locked(jars.KAFKA):
        (folder / jar.file).write_bytes(b"short")
    assert jars.fetched(jars.KAFKA) is None


def test_a_full_disk_while_fetching_is_a_typed_error_and_leaves_nothing(
    cache: Path, repository: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system itself refuses to write more: a file size limit, inherited by the Java that fetches."""
    folder, url = repository
    offer(folder, lambda jar: bytes(1_100_000))
    monkeypatch.setenv("CONNECTX_MAVEN_REPOSITORY", url)
    code = (
        "import resource, signal; from connectx.jvm import jars; from connectx.jvm.java import find_java\n"
        "from connectx.errors.machine import DiskFullError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n"
        "try: jars.fetch(jars.KAFKA, find_java())\n"
        "except DiskFullError as error: print(error)\n"
    )
    recorded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "is full" in recorded
    assert "CONNECTX_CACHE_DIR" in recorded
    assert left_in(cache) == []
    assert DiskFullError.retriable


def test_conventional_proxy_settings_reach_java() -> None:
    env = {"HTTPS_PROXY": "http://proxy.example:3128", "no_proxy": "localhost,.example"}
    assert ivy.proxy_options(env) == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.example",
    ]
    assert ivy.proxy_options({}) == []
