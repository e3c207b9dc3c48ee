"""Pages are written in plain English: words that make a reader stop are not in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
REPLACEMENTS = {
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
    r"of (?:its|one's|your) own": "own, separate, your",
    r"mend(?:s|ed)?": "fix",
    r"by hand": "manually",
    r"held up": "delayed",
}
CODE = re.compile(r"^```.*?^```|`[^`]*`|<!--.*?-->", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_has_none_of_the_words_that_have_a_plainer_one(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    found = [
        (match[0], plainer)
        for words, plainer in REPLACEMENTS.items()
        for match in re.finditer(rf"\b(?:{words})\b", text, re.IGNORECASE)
    ]
    assert found == []
