"""Regular expressions and placeholders of others: Java's meaning, in linear time, and never in the package `re`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import connectx
from connectx.errors.plugins import PatternError
from connectx.model.patterns import compiled, matches_any, problem_of
from connectx.model.placeholders import has_placeholder, placeholders, replaced

ROOT = Path(connectx.__file__).parent

# What java.util.regex.Pattern.matches answers.
JAVA = [
    ("(?<n>[a-z]).*", "abc", True),
    ("[a-z&&[^o]]+", "abc", True),
    ("[a-z&&[^o]]+", "foo", False),
    ("[^a&&b]", "a", True),
    ("[a-c[x-z]]+", "axz", True),
    ("[^a-c&&[b-z]]", "b", False),
    ("[\\w&&[^\\d]]+", "a_", True),
    ("[\\w&&[^\\d]]+", "a1", False),
    ("[]a]+", "]a", True),
    ("[a-]+", "a-", True),
    ("\\p{Alpha}+", "abC", True),
    ("\\p{Alpha}+", "é", False),
    ("\\p{Punct}", "_", True),
    ("\\p{L}+\\p{IsLatin}", "éß", True),
    ("\\P{Lu}", "A", False),
    ("(?i:\\P{Lu})", "a", False),
    ("\\Qa.b\\E+", "a.bb", True),
    ("\\x41\\u0042\\x{43}\\0104\\t", "ABCD\t", True),
    ("\\h\\R\\v", " \r\n\n", True),
    (".*", "a\nb", False),
    ("(?s).*", "a\nb", True),
    ("(?i)ORDERS", "orders", True),
    ("(?i)é", "É", False),
    ("(?iu)é", "É", True),
    ("(?x) a b # c", "ab", True),
    ("a{2,3}", "aaaa", False),
    ("[^-]*+-.*", "ab-cd", True),
    ("a*+b?+", "aab", True),
    ("^(orders|x)$", "orders", True),
    ("a|", "", True),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), JAVA)
def test_a_pattern_means_what_it_means_in_java(pattern: str, text: str, expected: bool) -> None:
    assert compiled(pattern).matches(text) is expected


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("(?=a)a", "look-around"),
        ("(?<!a)a", "look-around"),
        ("(a)\\1", "refers back"),
        ("(?<n>a)\\k<n>", "refers back"),
        ("(?>a+)b", "atomic"),
        ("a*+a", "possessive"),
        ("a{1001}", "1000"),
        ("((a{500}){500}){500}", "RE2 refuses it"),
        ("(" * 20_000, "characters"),
        ("(" * 9_000, "nested too deeply"),
        ("*a", "nothing that it could repeat"),
        ("a**", "quantifier"),
        ("[a", "ends within"),
        ("(a", "ends within"),
        ("a)", "no opening"),
        ("[b-a]", "before it begins"),
        ("\\y", "not known"),
        ("\\p{javaFoo}", "not known"),
    ],
)
def test_what_needs_backtracking_or_is_wrong_is_refused_by_name(pattern: str, named: str) -> None:
    with pytest.raises(PatternError) as refused:
        compiled(pattern)
    assert named in refused.value.reason
    assert refused.value.next_step


# Each takes more than a lifetime in an engine with backtracking.
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*", "(a|aa)+", "(.*a){25}", "([a-z]+)*", "(\\w+\\d*)+-"])
def test_no_pattern_holds_the_interpreter(pattern: str) -> None:
    assert not compiled(pattern).matches("a" * 5_000 + "!")


@given(st.text(st.sampled_from("ab-|()[]{}*+?.^$\\&QEpLux0123,<>=!:i é"), max_size=14), st.text(max_size=6))
def test_every_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    problem = problem_of(pattern)
    if problem is None:
        compiled(pattern).matches(text)
        compiled(pattern).is_in(text)


@given(st.text(st.sampled_from("ab-._"), max_size=8))
def test_topics_are_the_same_for_librdkafka(name: str) -> None:
    for pattern in ("a.*", "[^_].*", "(?i:A+)-?b*", "[a-b&&[^a]]+|\\.+", "\\w{1,3}", "a++[.]?"):
        of_topics = re.fullmatch(compiled(pattern).of_topics, name)  # its syntax is a part of Python's
        assert (of_topics is not None) is compiled(pattern).matches(name)


def test_half_of_a_surrogate_pair_is_matched_as_a_character() -> None:
    assert compiled("a.").matches("a\ud800")


def test_names_are_matched_in_any_case_where_it_is_asked_for() -> None:
    assert matches_any(("x", "Public\\..*"), "public.T", ignore_case=True)
    assert not matches_any(("x", "Public\\..*"), "public.T")


@pytest.mark.parametrize(
    ("pattern", "template", "text", "expected"),
    [
        ("(.*)-(.*)", "$2_$1", "a-b", "b_a"),
        ("(?<n>[a-z]).*", "${n}!", "abc", "a!"),
        ("(a)", "$10", "a", "a0"),
        ("a(b)?", "[$1]", "ac", "[]c"),
        ("a", "\\$1\\\\", "a", "$1\\"),
        ("b", "x", "ab", "ax"),
    ],
)
def test_a_replacement_is_javas(pattern: str, template: str, text: str, expected: str) -> None:
    assert compiled(pattern).replacement(template).first_in(text) == expected


@pytest.mark.parametrize("template", ["$1", "${n}", "$", "a\\", "$x"])
def test_a_replacement_that_refers_to_nothing_is_refused(template: str) -> None:
    with pytest.raises(PatternError):
        compiled("a").replacement(template)


def test_placeholders_are_found_as_kafka_finds_them() -> None:
    found = [(one.provider, one.path, one.key) for one in placeholders("${a:b} ${c:d:e:f} ${g} ${h:${i:j} ${k:}")]
    assert found == [("a", "", "b"), ("c", "d", "e:f"), ("h", "${i", "j"), ("k", "", "")]
    assert replaced("-${a:b}-${c:d:e}-", lambda one: one.key) == "-b-e-"
    assert not has_placeholder("${a} $b:c} {a:b}")


# Kafka's own expression, which takes long for the texts of the next test.
KAFKA = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")


@given(st.text(st.sampled_from("${}:ab"), max_size=16))
def test_placeholders_are_those_of_kafkas_expression(text: str) -> None:
    expected = [(found[1], found[3] or "", found[4]) for found in KAFKA.finditer(text)]
    assert [(one.provider, one.path, one.key) for one in placeholders(text)] == expected


@pytest.mark.parametrize("text", ["${a:" * 100_000, "${" * 100_000 + "}", "${a:}" * 100_000, "$" * 100_000])
def test_no_text_holds_the_search_for_placeholders(text: str) -> None:
    assert has_placeholder(text) is text.startswith("${a:}")


MADE_HERE = {
    "cli/remedies.py": "replacements that this module lists",
    "connectors/cdc/config.py": "a constant list of names",
    "data/transforms/date_format.py": "made of the letters of a date format, whose numbers are apart",
}
"""Modules whose patterns are no literals, and what they are instead."""

FUNCTIONS = {"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"}


def test_the_package_re_is_given_only_patterns_of_this_program() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in ROOT.rglob("*.py")}
    trees = {name: ast.parse(text) for name, text in texts.items() if "import re\n" in text}
    assert {name for name, tree in trees.items() if any(map(_is_open, ast.walk(tree)))} == set(MADE_HERE)


def _is_open(node: ast.AST) -> bool:
    """Whether this uses a function of `re` otherwise than by calling it with a literal or a constant of the module."""
    if isinstance(node, ast.Call) and _is_of_re(node.func):
        return not _is_literal(node.args[0])
    if isinstance(node, ast.Call):
        return any(_is_of_re(argument) for argument in node.args)
    return False


def _is_of_re(node: ast.AST) -> bool:
    is_function = isinstance(node, ast.Attribute) and node.attr in FUNCTIONS
    return is_function and isinstance(node.value, ast.Name) and node.value.id == "re"  # type: ignore[attr-defined]


def _is_literal(node: ast.AST) -> bool:
    """A text, or texts and constants put together."""
    if isinstance(node, ast.JoinedStr):
        return all(_is_literal(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _is_literal(node.value)
    if isinstance(node, ast.BinOp):
        return _is_literal(node.left) and _is_literal(node.right)
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id.isupper())
