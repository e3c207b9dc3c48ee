"""Java plugins are found on the plugin path without a JVM, and whatever cannot be used is named and skipped."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

import pytest

from connectx.plugins.java import contents, index
from connectx.plugins.java.finder import find
from connectx.plugins.java.plugin import Found, PluginKind
from tests.support.java_classes import CONVERTER, OBJECT, SINK, SOURCE, TRANSFORMATION, abstract_class, class_file, jar


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An entry of plugin.path."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    return folder


def ticks(name: str = "org.acme.Ticks", *, parent: str = SOURCE) -> bytes:
    return class_file(name, parent, version=True)


def named(found: Found) -> list[tuple[str, str, str | None]]:
    return [(plugin.class_name, plugin.kind.value, plugin.version) for plugin in found.plugins]


def reasons(found: Found) -> str:
    return "\n".join(map(str, found.refusals))


def test_a_manifest_names_plugins_of_every_kind_with_comments_and_blank_lines(path: Path) -> None:
    jar(
        path / "acme" / "acme-1.2.3.jar",
        ticks(),
        class_file("org.acme.Words", OBJECT, [CONVERTER], version=True),
        class_file("org.acme.Cut$Key", OBJECT, [TRANSFORMATION]),
        services={
            SOURCE: "# Licensed\r\n\r\n  org.acme.Ticks  # the only one\r\n",
            CONVERTER: "\ufefforg.acme.Words",
            TRANSFORMATION: "\torg.acme.Cut$Key\n\n",
        },
    )
    found = find([path])
    assert named(found) == [
        ("org.acme.Cut$Key", "transformation", None),
        ("org.acme.Ticks", "source", "1.2.3"),
        ("org.acme.Words", "converter", "1.2.3"),
    ]
    assert found.refusals == ()
    assert found.all_in_manifests
    assert found.locations == (path / "acme",)
    assert {plugin.location for plugin in found.plugins} == {path / "acme"}


def test_classes_without_a_manifest_are_found_through_base_classes_in_other_jars(path: Path) -> None:
    folder = path / "acme"
    jar(
        folder / "base.jar",
        abstract_class("org.acme.base.Base", SINK),
        abstract_class("org.acme.base.Middle", "org.acme.base.Base"),
    )
    jar(
        folder / "lib" / "deep.jar", class_file("org.acme.Tables", "org.acme.base.Middle"), class_file("org.acme.Other")
    )
    jar(folder / "kafka.jar", class_file("org.acme.MyJson", "org.apache.kafka.connect.json.JsonConverter"))
    found = find([path])
    assert named(found) == [
        ("org.acme.MyJson", "converter", "4.3.0"),
        ("org.acme.MyJson", "header_converter", "4.3.0"),
        ("org.acme.Tables", "sink", None),
    ]
    assert not found.all_in_manifests
    assert find([path], "service_load") == Found()


def test_only_scan_reads_no_manifests(path: Path) -> None:
    jar(path / "acme.jar", services={SOURCE: "org.acme.Gone"})
    assert find([path], "only_scan") == Found()
    assert "org.acme.Gone, a class that" in reasons(find([path]))


def test_classes_that_cannot_be_made_are_no_plugins(path: Path) -> None:
    jar(
        path / "acme.jar",
        abstract_class("org.acme.Abstract", SOURCE),
        class_file("org.acme.Hidden", SOURCE, flags=0x20),
        class_file("org.acme.NeedsMore", SOURCE, constructor=False),
        class_file("org.apache.kafka.connect.runtime.Mine", SOURCE),
    )
    assert find([path]) == Found()


def test_jars_and_folders_of_classes_are_locations(path: Path, tmp_path: Path) -> None:
    jar(path / "uber.JAR", ticks("org.acme.Uber"))
    jar(path / "packed.zip", ticks("org.acme.Packed"))
    classes = path / "classes" / "org" / "acme"
    classes.mkdir(parents=True)
    (classes / "Loose.class").write_bytes(ticks("org.acme.Loose"))
    single = jar(tmp_path / "elsewhere" / "single.jar", ticks("org.acme.Single"))
    (path / "README").write_text("no plugin")
    found = find([path, single])
    assert [(plugin.class_name, plugin.location) for plugin in found.plugins] == [
        ("org.acme.Loose", path / "classes"),
        ("org.acme.Packed", path / "packed.zip"),
        ("org.acme.Single", single),
        ("org.acme.Uber", path / "uber.JAR"),
    ]
    assert found.refusals == ()


@pytest.mark.parametrize(
    ("name", "manifest", "pom", "version"),
    [
        ("acme-2.0.jar", "", "", "2.0"),
        ("acme-2.0.jar", "Manifest-Version: 1.0\r\nImplementation-Version: 3.0\r\n", "", "3.0"),
        (
            "acme-2.0.jar",
            "Implementation-Version: 3.0.0-a\r\n very-long-one\r\n\r\nName: x\r\n",
            "",
            "3.0.0-avery-long-one",
        ),
        (
            "acme-2.0.jar",
            "Implementation-Version: 3.0\n",
            "#comment\nversion=4.0.Final\ngroupId=org.acme\n",
            "4.0.Final",
        ),
        ("acme.jar", "Name: x\n\nImplementation-Version: 3.0\n", "", None),
        ("acme.jar", "Implementation-Version: \x1b[31m\n", "version=" + "9" * 200, None),
    ],
)
def test_the_version_is_that_of_the_jar(path: Path, name: str, manifest: str, pom: str, version: str | None) -> None:
    files = {"META-INF/MANIFEST.MF": manifest, "META-INF/maven/org.acme/acme/pom.properties": pom}
    jar(path / name, ticks(), files={entry: text for entry, text in files.items() if text})
    assert named(find([path])) == [("org.acme.Ticks", "source", version)]


def test_two_versions_are_listed_with_the_newest_first(path: Path) -> None:
    for version in ("1.9.0", "1.10.0", "1.10.0-rc1"):
        jar(path / f"acme-{version}" / f"acme-{version}.jar", ticks(), services={SOURCE: "org.acme.Ticks"})
    assert [plugin.version for plugin in find([path]).plugins] == ["1.10.0", "1.10.0-rc1", "1.9.0"]


def test_a_class_twice_in_a_plugin_is_reported(path: Path) -> None:
    for name in ("a-1.jar", "b-2.jar"):
        jar(path / "acme" / name, ticks(), services={SOURCE: "org.acme.Ticks"})
    found = find([path])
    assert named(found) == [("org.acme.Ticks", "source", "1")]
    assert "org.acme.Ticks is in a-1.jar, too" in reasons(found)


def test_missing_folders_and_damaged_jars_are_named_and_skipped(path: Path) -> None:
    jar(path / "good" / "good.jar", ticks())
    broken = jar(path / "good" / "cut.jar", ticks("org.acme.Cut"))
    broken.write_bytes(broken.read_bytes()[:-30])
    (path / "text.jar").write_text("<html>404 Not Found</html>")
    (path / "empty.jar").touch()
    (path / "folder.jar").mkdir()
    os.mkfifo(path / "pipe.jar")
    (path / "loop").mkdir()
    (path / "loop" / "again").symlink_to(path / "loop")
    (path / "nowhere.jar").symlink_to(path / "gone")
    found = find([path, path / "missing", "", "/dev/null", "zero\0byte"])
    assert named(found) == [("org.acme.Ticks", "source", None)]
    text = reasons(found)
    for name in ("cut.jar", "text.jar", "empty.jar", "pipe.jar", "nowhere.jar", "missing", "/dev/null"):
        assert f"{name} is skipped: " in text, name
    assert "it is no regular file" in text


def test_damaged_manifests_and_class_files_are_named_and_skipped(path: Path) -> None:
    whole = ticks("org.acme.Cut")
    jar(
        path / "acme.jar",
        ticks(),
        class_file("org.acme.NoSource"),
        files={
            "org/acme/Cut.class": whole[: len(whole) // 2],
            "org/acme/Renamed.class": ticks("org.acme.Another"),
            "org/acme/Junk.class": os.urandom(100),
        },
        services={
            SOURCE: "org.acme.Cut\norg.acme.Renamed\norg.acme.NoSource\n../../etc/passwd\norg.acme.Ticks\n",
            SINK: b"\xff\xfe\x00\x80",
        },
    )
    found = find([path])
    assert named(found) == [("org.acme.Ticks", "source", None)]
    text = reasons(found)
    assert "org.acme.Cut, whose class file" in text
    assert "org.acme.Renamed, whose class file" in text
    assert "org.acme.NoSource as source, from" in text
    assert f"manifest of {SOURCE} is no class name" in text
    assert "passwd" not in text
    assert f"{SINK} is unreadable: it is not" in text


def test_a_bomb_is_not_unpacked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MOST_ENTRY_BYTES", 1 << 20)
    jar(path / "bomb.jar", ticks(), services={SOURCE: "org.acme.Ticks", SINK: b"\n" * (2 << 20)})
    found = find([path])
    assert named(found) == [("org.acme.Ticks", "source", None)]
    assert "decompresses to more than 1 MB" in reasons(found)
    monkeypatch.setattr(contents, "MOST_ENTRIES", 2)
    assert "it has more than 2 entries" in reasons(find([path], "service_load"))


def test_encrypted_jars_and_unknown_compressions_are_refused(path: Path) -> None:
    for name, offset, value in (("encrypted.jar", 8, 1), ("method.jar", 10, 98)):
        file = jar(path / name, ticks(), services={SOURCE: "org.acme.Ticks"})
        data = bytearray(file.read_bytes())
        with zipfile.ZipFile(file) as archive:
            first = archive.start_dir
        struct.pack_into("<H", data, first + offset, value)
        file.write_bytes(data)
    text = reasons(find([path]))
    assert text.count("zip file that Java cannot") == 2


def test_names_that_are_not_utf_8_can_be_printed(path: Path) -> None:
    odd = os.fsdecode(os.fsencode(path) + b"/\xff\xfe.jar")
    Path(odd).write_bytes(b"junk")
    folder = os.fsdecode(os.fsencode(path) + b"/\xe4cme")
    jar(Path(folder) / "acme.jar", ticks())
    for _ in range(2):  # the second time from the index
        found = find([path])
        assert named(found) == [("org.acme.Ticks", "source", None)]
        assert "\ufffd" in reasons(found)
        reasons(found).encode()


def test_links_are_followed_once(path: Path, tmp_path: Path) -> None:
    jar(tmp_path / "store" / "acme" / "acme.jar", ticks())
    (path / "acme").symlink_to(tmp_path / "store" / "acme")
    (path / "twin").symlink_to(tmp_path / "store" / "acme")
    assert [plugin.location for plugin in find([path, tmp_path / "store"]).plugins] == [path / "acme"]


def test_what_was_found_is_kept_until_a_file_changes(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = jar(path / "acme" / "acme.jar", ticks())
    first = find([path])
    with monkeypatch.context() as patch:
        patch.setattr(zipfile, "ZipFile", None)
        assert find([path]) == first
    for damage in (b"", b"{}", b'{"plugins": 3}', b"[" * 100_000, b"\xff"):
        (kept,) = (cache / "plugin-index").iterdir()
        kept.write_bytes(damage)
        assert find([path]) == first
    jar(file, ticks("org.acme.Newer"))
    assert [plugin.class_name for plugin in find([path]).plugins] == ["org.acme.Newer"]
    jar(path / "acme" / "more.jar", ticks("org.acme.More"))
    assert [plugin.class_name for plugin in find([path]).plugins] == ["org.acme.More", "org.acme.Newer"]


def test_a_cache_that_cannot_be_written_costs_only_time(path: Path, cache: Path) -> None:
    jar(path / "acme.jar", ticks())
    cache.mkdir()
    (cache / "plugin-index").write_text("a file in the place of the folder")
    assert [plugin.kind for plugin in find([path]).plugins] == [PluginKind.SOURCE]
    assert index.read(path / "acme.jar", "x") is None
