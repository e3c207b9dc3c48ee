"""What the documents name exists: files, commands, Python names."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import typer

import connectx
from connectx.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FOLDERS = ["connectx", "tests", "notebooks", "bench", "widgets", "docs", "deploy"]
FOLDERS += sorted(path.name for path in (ROOT / "connectx").iterdir() if path.is_dir() and path.name != "__pycache__")


def name_of(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./*-]*)`", page.read_text(encoding="utf-8"))
    missing = [name for name in named if not list(ROOT.glob(name)) and not list((ROOT / "connectx").glob(name))]
    linked = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    missing += [name for name in linked if not (page.parent / name).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")))
    texts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in named if f"def {name}(" not in texts} == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_command_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"\bmake (\w+)\b *(?:#|`)", page.read_text(encoding="utf-8")))
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_in_the_pages_is_python_and_names_what_connectx_exports(page: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        tree = ast.parse(block)
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        used = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "cx"}
        assert used <= set(connectx.__all__)


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=name_of)
def test_a_python_example_is_run_by_a_test_or_states_why_not(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    before = [lines[number - 1] for number, line in enumerate(lines) if line == "```python"]
    marker = re.compile(r"<!-- (run|run in a cluster|not run: .+) -->")
    assert [line for line in before if not marker.fullmatch(line)] == []


def test_the_layer_table_has_a_row_for_every_folder_and_each_names_its_subfolders() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w/]+)/` \| (.*) \|$", text, re.MULTILINE))
    inside = ROOT / "connectx"
    folders = {path.parent.relative_to(inside) for path in inside.rglob("__init__.py")} - {Path()}
    assert rows.keys() == {folder.parts[0] for folder in folders} | {"widgets/connectx_widgets"}
    below = {(folder.parts[0], "/".join(folder.parts[1:])) for folder in folders if len(folder.parts) > 1}
    assert {folder for part, folder in below if f"`{folder}/`" not in rows[part]} == set()


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name_of)
def test_every_verb_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for verb in set(re.findall(r"(?<![\w.-])cluster\.(\w+)", text)):
        assert hasattr(connectx.Cluster, verb) or f"self.{verb}" in (ROOT / "connectx/api/cluster.py").read_text(
            "utf-8"
        )
    for verb in set(re.findall(r'cluster\["[\w-]+"\]\.(\w+)', text)):
        assert hasattr(connectx.Connector, verb)


def test_the_table_of_the_readme_links_every_page_of_the_site_by_its_title() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    titles = {page: title.strip('"') for title, page in re.findall(r"- (.+): (\S+\.md)$", nav, re.MULTILINE)}
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Documentation\n")[2].partition("\n## ")[0]
    linked = {page: title for title, page in re.findall(r"\[([^]]+)\]\(docs/([\w/.-]+\.md)\)", table)}
    alone = {page: title for page, title in titles.items() if page != "index.md" and not page.startswith("connectors/")}
    assert linked == {**alone, "connectors/index.md": "Overview"}


def test_pictures_load_fast() -> None:
    pictures = [path for path in (ROOT / "docs").rglob("*") if path.suffix in (".gif", ".png", ".svg")]
    assert [path.name for path in pictures if path.stat().st_size > 400_000] == []
    assert pictures != []


@pytest.mark.parametrize(("page", "lines"), [("README.md", 120), ("ARCHITECTURE.md", 150)])
def test_the_pages_that_are_read_first_are_short(page: str, lines: int) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= lines


# A changelog also names commands of earlier versions.
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name_of)
def test_every_connectx_command_that_a_page_names_has_its_options(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```(?!python)\w*\n(.*?)```", text, re.DOTALL))
    lines = re.findall(r"^(?:\$ )?(connectx .*)$", blocks, re.MULTILINE) + re.findall(r"`(connectx [^`]+)`", text)
    for line in lines:
        words = line.partition("#")[0].split()[1:]
        command: Any = typer.main.get_command(app)
        while words and hasattr(command, "commands"):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, line
