"""Pages and code are written in plain English, names too, and the formatter lays out the code.

Words that make a reader stop are in no text and no name, a docstring has more than the name that it describes, and no
line is packed against the formatter.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS: Final = [
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "connectx").iterdir()) if path.name[0] != "_"),
    *("widgets/connectx_widgets", "bench", "notebooks", "tests/support"),
]
REPLACEMENTS: Final = {
    r"told|tells?": "report, return, show",
    r"behind": "after",
    r"what became of": "outcome, result",
    r"for ever|without end": "forever, indefinitely, until it succeeds",
    r"somebody|nobody|who(?:so)?ever": "the name of the component",
    r"has to be there|stands in": "is required, is in",
    r"gives? over": "hand over",
    r"a look|looks at": "poll, inspect",
    r"let go|gives? up": "release, close, abandon",
    r"is content|is honest|is meant so": "is valid, is exact, is intended",
    r"anew|at once|as long as it takes": "again, immediately, without a timeout",
    r"of (?:its|one's|your|their|my) own": "own, separate, your",
    r"mend(?:s|ed)?": "fix",
    r"by hand": "manually",
    r"held up": "delayed",
    r"go(?:es|ing)? on": "continue, happen, be in progress",
    r"for good": "permanently",
    r"takes? part": "join, be involved",
    r"once more": "again",
    r"no goodbye": "leave the group",
    r"says|said": "report, show, mean, name",
    r"besides(?=[.;:)])": "also, in addition",
    r"is heard|hears?": "get, receive",
    r"newcomers?": "new worker, new member",
    r"at hand": "gathered, in memory, waiting",
}
NAMED: Final = (
    r"told|untold|tells?|behind|somebody|nobody|who(?:so)?ever|let_go|lets_go|gives?_up|gave_up|go(?:es|ing)?_on|at_hand"
    r"|anew|at_once|by_hand|held_up|for_good|newcomers?|says?|said|hears?|heard|mend(?:s|ed)?|for_ever|without_end"
    r"|goodbyes?|became_of|once_more"
)
"""Words of the same list, as they are in names."""
NAME: Final = re.compile(rf"(?:^|_)(?:{NAMED})(?:_|$)")
PRODUCT: Final = [
    *sorted((ROOT / "connectx").rglob("*.py")),
    *sorted((ROOT / "widgets/connectx_widgets").rglob("*.py")),
]
FILLERS: Final = r"a|all|an|and|as|by|for|in|is|it|its|of|one|returns?|that|the|to|what|which|with"
PATTERNS: Final = {
    re.compile(r"(?<![\w-])(?:" + words.replace(" ", r"\s+") + r")(?![\w-])", re.IGNORECASE): plainer
    for words, plainer in REPLACEMENTS.items()
}
FENCED: Final = re.compile(r"^```.*?^```|<!--.*?-->", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"`[^`]*`")
SCRIPT: Final = re.compile(r"//[^\n]*|/\*.*?\*/|\"[^\"\n]*\"|'[^'\n]*'|`[^`]*`", re.DOTALL)
Prose = tuple[int, str]
"""A piece of prose, with the line where it begins."""


def python_prose(source: str) -> Iterator[Prose]:
    """Comments, runs of them as one piece, and strings of several words, docstrings among them."""
    comments: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if comments and token.start[0] > comments[-1][0] + 1:
                yield comments[0][0], " ".join(text for _, text in comments)
                comments = []
            comments.append((token.start[0], token.string.lstrip("# ")))
    if comments:
        yield comments[0][0], " ".join(text for _, text in comments)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def script_prose(source: str) -> Iterator[Prose]:
    """Comments, and strings of several words outside of their embedded expressions."""
    for match in SCRIPT.finditer(source):
        text = re.sub(r"\$\{[^}]*\}|class=\"[^\"]*\"", " ", match[0]).strip("`")
        if " " in text.strip():
            yield source.count("\n", 0, match.start()) + 1, text


def notebook_prose(source: str) -> Iterator[Prose]:
    """Texts of a notebook, and the prose of its code; the number of the cell in place of a line."""
    for number, cell in enumerate(json.loads(source)["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield number, FENCED.sub("", text)
        else:
            yield from ((number, prose) for _, prose in python_prose(re.sub(r"^[%!].*", "", text, flags=re.MULTILINE)))


READERS: Final = {
    ".md": lambda source: iter([(1, FENCED.sub(lambda found: "\n" * found[0].count("\n"), source))]),
    ".py": python_prose,
    ".mjs": script_prose,
    ".html": lambda source: iter([(1, re.sub(r"(?:class|id)=\"[^\"]*\"", "", source))]),
    ".css": lambda source: ((1, found[0]) for found in re.finditer(r"/\*.*?\*/", source, re.DOTALL)),
    ".ipynb": notebook_prose,
}


def listed_words(path: Path, root: Path = ROOT) -> list[str]:
    """What a file has of the listed words: place, word, and what to write instead."""
    found = []
    for line, prose in READERS[path.suffix](path.read_text(encoding="utf-8")):
        text = CODE.sub(lambda code: "\n" * code[0].count("\n"), prose) if path.suffix != ".mjs" else prose
        for words, plainer in PATTERNS.items():
            for match in words.finditer(text):
                place = f"{path.relative_to(root).as_posix()}:{line + text.count(chr(10), 0, match.start())}"
                found.append(f"{place}: {' '.join(match[0].split())!r}, rather: {plainer}")
    return found


def name_problems(source: str) -> Iterator[str]:
    """Names that a file gives and that have a listed word in them, with their lines."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                pass
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        if NAME.search(snake(name)):
            yield f"{node.lineno}: {name}"


def snake(name: str) -> str:
    """`RecordsAtHand` as `records_at_hand`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def layout_problems(source: str) -> Iterator[str]:
    """Lines that the formatter was kept from: by a comment, by a banner, or by a literal unpacked into another."""
    for number, line in enumerate(source.splitlines(), 1):
        if re.search(r"# fmt: (?:skip|off)|^\s*# ?[-=#]{6,}", line):
            yield f"{number}: {line.strip()}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple | ast.List | ast.Set):
            yield f"{node.lineno}: *(...)"
        if isinstance(node, ast.Dict):
            inner = (value for key, value in zip(node.keys, node.values, strict=True) if key is None)
            yield from (f"{value.lineno}: **{{...}}" for value in inner if isinstance(value, ast.Dict))


def docstring_problems(source: str) -> Iterator[str]:
    """Docstrings that refer to a base class, where `@override` does, or whose words are all in the name."""
    for owner in ast.walk(ast.parse(source)):
        if not isinstance(owner, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        for node in owner.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                known = stems(snake(f"{getattr(owner, 'name', '')}_{node.name}").split("_"))
                if re.fullmatch(r"As in [A-Z]\w+\.", text) or stems(re.findall(r"\w+", text.lower())) <= known:
                    yield f"{node.lineno}: {node.name}: {text}"


def stems(words: Iterable[str]) -> set[str]:
    """Words without their plural, and without those that carry no meaning."""
    return {word.rstrip("s") for word in words if not re.fullmatch(FILLERS, word)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_has_none_of_the_words_that_have_a_plainer_one(page: Path) -> None:
    assert listed_words(page) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_code_has_none_of_the_words_that_have_a_plainer_one(folder: str) -> None:
    place = ROOT / folder
    files = [place] if place.is_file() else sorted(place.rglob("*"))
    checked = [path for path in files if path.suffix in READERS and ".ipynb_checkpoints" not in path.parts]
    assert [problem for path in checked for problem in listed_words(path)] == []


@pytest.mark.parametrize("problems", [name_problems, layout_problems, docstring_problems])
def test_names_layout_and_docstrings_are_plain(problems: Callable[[str], Iterator[str]]) -> None:
    found = {path.relative_to(ROOT).as_posix(): list(problems(path.read_text(encoding="utf-8"))) for path in PRODUCT}
    assert {place: listed for place, listed in found.items() if listed} == {}


@pytest.mark.parametrize(
    ("problems", "source", "expected"),
    [
        (name_problems, "def f(at_once):\n    told.x = RecordsAtHand\n    whoever = 1\n", ["1: at_once", "3: whoever"]),
        (name_problems, "class Newcomer: ...\nbehinds = foretold = 1\n", ["1: Newcomer"]),
        (layout_problems, "x = [1]  # fmt: skip\n# ------ y\n# - z\n", ["1: x = [1]  # fmt: skip", "2: # ------ y"]),
        (layout_problems, "f(*(1, 2), *a, *(b for b in c))\ng = {**{'a': 1}, **h}\n", ["1: *(...)", "2: **{...}"]),
        (
            docstring_problems,
            'def key_names():\n    """The names of the key."""\n',
            ["1: key_names: The names of the key."],
        ),
        (docstring_problems, 'class A:\n    def f(self):\n        """As in Target."""\n', ["2: f: As in Target."]),
        (docstring_problems, 'def close():\n    """Close the connections."""\n', []),
    ],
)
def test_names_layout_and_docstrings_that_are_not_plain_are_found(
    problems: Callable[[str], Iterator[str]], source: str, expected: list[str]
) -> None:
    assert sorted(problems(source)) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("page.md", "It waits for\never, `told` nothing.\n```\ntold\n```\nNobody.\n", ["1: 'for ever'", "6: 'Nobody'"]),
        ("code.py", '"""One.\n\nTwo tells it."""\nx = f"{1} was told {2}"\n', ["3: 'tells'", "4: 'told'"]),
        ("code.py", "# It waits for\n# ever.\ntold = 'told'\n", ["1: 'for ever'"]),
        ("code.mjs", 'const told = 1; // told\nf("nobody knows", `a ${told} b told`, "told");\n',
         ["1: 'told'", "2: 'nobody'", "2: 'told'"]),
        ("page.css", "/* told */ .told{}", ["1: 'told'"]),
        ("page.html", '<!doctype html>\n<p class="told x">It was told</p>', ["2: 'told'"]),
        ("book.ipynb", json.dumps({"cells": [{"cell_type": "markdown", "source": ["`told`"]},
         {"cell_type": "code", "source": ["%pip x\n", "f()  # at once"]}]}), ["1: 'at once'"]),
    ],
)  # fmt: skip
def test_listed_words_are_found_in_prose_alone(name: str, text: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    problems = listed_words(tmp_path / name, tmp_path)
    assert [problem.removeprefix(f"{name}:").partition(",")[0] for problem in problems] == expected
