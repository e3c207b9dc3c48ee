"""Java plugins are installed whole and locked by their checksums, and hostile archives are refused."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import connectx as cx
from connectx.errors.plugins import PluginInstallError
from connectx.jvm.cache import cache_dir
from connectx.jvm.maven import Coordinates
from connectx.plugins.java import archives
from connectx.plugins.java.finder import find
from tests.support.java_classes import SOURCE, class_file, jar


@pytest.fixture
def acme(tmp_path: Path) -> Path:
    """A folder with a plugin."""
    folder = tmp_path / "acme connector"
    jar(
        folder / "acme-1.0.jar", class_file("org.acme.Ticks", SOURCE, version=True), services={SOURCE: "org.acme.Ticks"}
    )
    jar(folder / "lib" / "helper.jar", class_file("org.acme.Helper"))
    (folder / "README.md").write_text("not needed")
    return folder


def reason_of(source: Path | str) -> str:
    with pytest.raises(PluginInstallError) as raised:
        cx.plugins.install(source)
    return raised.value.message


def zipped(path: Path, *names: str, mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, b"x")
    return path


def test_a_folder_is_installed_listed_and_removed(acme: Path, cache: Path) -> None:
    done = cx.plugins.install(acme)
    assert done.name == "acme-connector"
    assert [(one.class_name, one.version) for one in done.plugins] == [("org.acme.Ticks", "1.0")]
    assert done.source == str(acme)
    assert sorted(path.name for path in done.folder.rglob("*.*")) == [
        "acme-1.0.jar",
        "connectx-plugin.json",
        "helper.jar",
    ]
    assert [(one.name, one.problem) for one in cx.plugins.installed()] == [("acme-connector", None)]
    assert "org.acme.Ticks" in repr(cx.plugins.installed())
    assert cx.plugins.install(acme) == done
    cx.plugins.remove("acme-connector")
    assert cx.plugins.installed() == []
    assert list((cache / "plugins").iterdir()) == list((cache / "plugins-staging").iterdir()) == []


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "jar", "folder.zip"])
def test_archives_and_single_jars_are_installed(acme: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"acme-1.0.{kind}"
    inner = "" if kind == "zip" else "acme/"
    if kind == "jar":
        path = acme / "acme-1.0.jar"
    elif kind.endswith("zip"):
        with zipfile.ZipFile(path, "w") as archive:
            for file in acme.rglob("*.jar"):
                archive.write(file, inner + str(file.relative_to(acme)))
    else:
        with tarfile.open(path, "w:gz") as tar:
            tar.add(acme, "acme")
    done = cx.plugins.install(path)
    assert [one.class_name for one in done.plugins] == ["org.acme.Ticks"]
    assert (done.folder / "acme-1.0.jar").is_file()


def test_changed_files_are_noticed_and_the_plugin_is_not_used(acme: Path, cache: Path) -> None:
    folder = cx.plugins.install(acme).folder
    used = find([cache / "plugins"])
    assert [one.class_name for one in used.plugins] == ["org.acme.Ticks"]
    helper = folder / "lib" / "helper.jar"
    content = helper.read_bytes()
    changes: dict[str, Callable[[], object]] = {
        "helper.jar has changed": lambda: helper.write_bytes(content + b"\0"),
        "helper.jar is missing": helper.unlink,
        "more.jar was added": lambda: (helper.write_bytes(content), (folder / "more.jar").write_bytes(content)),
        "connectx-plugin.json is unreadable": lambda: (folder / "connectx-plugin.json").write_text("["),
    }
    for problem, change in changes.items():
        change()
        (listed,) = cx.plugins.installed()
        assert problem in str(listed.problem)
        assert listed.plugins == ()
        found = find([cache / "plugins"])
        assert found.plugins == ()
        assert problem in str(found.refusals[0])
        assert "another plugin of the name" in reason_of(acme)
    cx.plugins.remove("acme-connector")
    assert cx.plugins.install(acme).problem is None


def test_what_holds_no_plugin_is_not_installed(tmp_path: Path) -> None:
    jar(tmp_path / "plain" / "plain.jar", class_file("org.acme.Plain"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.jar").write_text("404")
    assert "no Java plugin is in" in reason_of(tmp_path / "plain")
    assert "no Java plugin is in" in reason_of(tmp_path / "empty")
    assert "no valid zip file" in reason_of(tmp_path / "text.jar")
    for source in ("nowhere.zip", "a:b", "a:b:[1,2)", "a:../b:1", ""):
        assert "neither group:artifact:version" in reason_of(source)
    assert cx.plugins.installed() == []


@pytest.mark.parametrize("name", ["../../evil.jar", "/tmp/evil.jar", "a/../../evil.jar", "..\\evil.jar"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    assert "leads out of its folder" in reason_of(zipped(tmp_path / "evil.zip", name))
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    assert "leads out of its folder" in reason_of(path)
    assert [file.name for file in tmp_path.rglob("evil*") if file.suffix == ".jar"] == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("a.jar")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    assert "a link or a device" in reason_of(path)
    assert "a link or a device" in reason_of(zipped(tmp_path / "evil.zip", "a.jar", mode=stat.S_IFLNK | 0o777))


def test_bombs_and_repeated_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        assert "two files of the name" in reason_of(zipped(tmp_path / "twice.zip", "a.jar", "a.jar"))
    monkeypatch.setattr(archives, "MOST_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jar", bytes(2 << 20))
    assert "unpacks to more than" in reason_of(tmp_path / "bomb.zip")
    monkeypatch.setattr(archives, "MOST_FILES", 3)
    assert "more than 3 files" in reason_of(zipped(tmp_path / "many.zip", *(f"{n}.jar" for n in range(5))))


def test_a_damaged_archive_is_refused(acme: Path, tmp_path: Path) -> None:
    path = tmp_path / "acme.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(acme, "acme")
    data = path.read_bytes()
    for size in (0, 10, len(data) // 2):
        path.write_bytes(data[:size])
        assert "acme.tar.gz cannot be used" in reason_of(path)
    assert not any((cache_dir() / "plugins-staging").iterdir())


@pytest.mark.parametrize("name", ["other", "..", "../plugins", "/", ""])
def test_only_what_is_installed_can_be_removed(acme: Path, name: str) -> None:
    cx.plugins.install(acme)
    with pytest.raises(PluginInstallError, match="acme-connector installed"):
        cx.plugins.remove(name)
    assert [one.name for one in cx.plugins.installed()] == ["acme-connector"]


def test_coordinates_name_one_version() -> None:
    assert Coordinates.of(" io.debezium:debezium-connector-postgres:3.6.0.Final ") == Coordinates(
        "io.debezium", "debezium-connector-postgres", "3.6.0.Final"
    )
    for text in ("a:b", "a:b:c:d", "a:b:", 'a:b:"/><x', "a:b:1 2", "a:-b:1"):
        assert Coordinates.of(text) is None
