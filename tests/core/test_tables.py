"""One vocabulary for both engines: numbers in the Cython sources, limits, every character."""

from __future__ import annotations

import re
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any

import pytest

from consensuspr.core import NORMAL_FORM_VERSION, patterns, statements, tables
from consensuspr.core.patterns import Channel, Edge
from consensuspr.core.pure import state
from consensuspr.core.tables import CHAR_CLASSES, CHAR_MAP, COMMANDS, WORDS, Char, Command, Word

# Limits that the compiled core reads from the module, or that its integers have of themselves.
NOT_COMPILED = ("MAX_INT", "MAX_WORD")


@pytest.fixture(scope="module")
def constants(repository: Path) -> dict[str, int]:
    """Every enumerator of the compiled core with its value, read from its sources."""
    folder = repository / "core_ext" / "consensuspr" / "core" / "native"
    found: dict[str, int] = {}
    for path in sorted([*folder.glob("*.pxd"), *folder.glob("*.pxi"), *folder.glob("*.pyx")]):
        for body in re.findall(
            r"^cdef enum\b[^\n]*:\n((?:[ ]{4}.*\n|\n)+)", path.read_text(encoding="utf-8"), re.M
        ):
            found.update(_enumerators(body))
    return found


def _enumerators(body: str) -> dict[str, int]:
    values: dict[str, int] = {}
    following = 0
    items = [item for line in body.splitlines() for item in line.split("#")[0].split(",")]
    for item in filter(None, map(str.strip, items)):
        name, _, value = (part.strip() for part in item.partition("="))
        if value:
            following = eval(value, {}, values)  # also of those before it
        values[name] = following
        following += 1
    return values


@pytest.mark.parametrize(
    ("prefix", "enum"),
    [
        ("CH_", Char), ("CMD_", Command), ("W_", Word), ("K_", state.Kind), ("GAP_", state.Gap),
        ("C_", state.Content), ("G_", state.Group), ("EDGE_", Edge), ("CHANNEL_", Channel),
        ("M_", statements.Meaning),
    ],
)  # fmt: skip
def test_enumerations_agree(
    constants: dict[str, int], prefix: str, enum: type[IntEnum] | type[IntFlag]
) -> None:
    compiled = {
        name.removeprefix(prefix): value
        for name, value in constants.items()
        if name.startswith(prefix)
    }
    compiled.pop("MULTIBYTE", None)  # a byte that has to be decoded first, no class
    expected = {name: int(member) for name, member in enum.__members__.items()}
    if "NONE" not in compiled:
        expected.pop("NONE", None)
    assert compiled == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REPLACEMENT_CODE", ord(tables.REPLACEMENT)),
        ("LOOKAHEAD_LIMIT", tables.LOOKAHEAD),
        ("UNIT_WORDS_LIMIT", tables.MAX_UNIT_WORDS),
        ("REWRITE_LIMIT", tables.MAX_REWRITE_BYTES),
        ("UNIT_BRACKET_LIMIT", tables.MAX_UNIT_BRACKET),
        ("FACTOR_LIMIT", tables.MAX_FACTOR),
        ("LABEL_LIMIT", tables.MAX_LABEL),
        ("MAX_ANSWER_BYTES", patterns.MAX_ANSWER_BYTES),
        ("OPEN_GROUPS", tables.MAX_OPEN_GROUPS),
        ("SHORTEST_NAME", tables.MIN_NAME),
        ("UNIT_DIGITS_LIMIT", tables.MAX_UNIT_DIGITS),
        ("BRACKET_LIMIT", tables.MAX_REWRITE_BYTES),
        ("LETTERS_OF_NAME", tables.MIN_NAME),
        *(
            (name, getattr(statements, name))
            for name in dir(statements)
            if name.startswith(("MAX_", "MIN_")) and name not in NOT_COMPILED
        ),
    ],
)
def test_limits_agree(constants: dict[str, int], name: str, value: int) -> None:
    assert constants[name] == value


def test_names_fit_the_compiled_tables(constants: dict[str, int]) -> None:
    # A vocabulary is at most half full, and a word is two machine words.
    assert max(len(name.encode()) for name in COMMANDS) < constants["KEY_BYTES"]
    assert all(2 <= len(word) < 16 and word == word.lower() and word.isascii() for word in WORDS)
    assert 2 * max(len(COMMANDS), len(WORDS)) <= constants["VOCABULARY_SLOTS"]
    assert len(tables.NEGATED) <= constants["NEGATIONS"]
    assert len(tables.DISPLAYS) < constants["MOST_DISPLAYS"]
    assert max(map(len, tables.DISPLAYS)) < constants["DISPLAY_BYTES"] <= constants["KEY_BYTES"]


def test_canonical_characters_are_final_and_no_longer() -> None:
    # The bound on the output, and one canonical character for each, rest on both.
    for code, canonical in CHAR_MAP.items():
        assert len(canonical) == 1
        assert ord(canonical) not in CHAR_MAP or CHAR_MAP[ord(canonical)] == canonical
        assert len(canonical.encode()) <= len(chr(code).encode("utf-8", "surrogatepass"))
    assert [char for char in CHAR_CLASSES if CHAR_MAP.get(ord(char), char) != char] == []


def test_engines_agree_on_every_character(engines: Any, full: bool) -> None:
    native, python = engines
    codes = [*range(0x3400), *range(0xF900, 0x10000), *range(0x1D400, 0x1D800), 0x1F600, 0x10FFFF]
    if not full:  # the first blocks, and one in five of the others
        codes = [*range(0x500), *codes[0x500::5]]
    for template in ("a{0}b 1{0}2 {0}\n\n", "{0}x{0}=5{0} {0}{0}\n\n"):
        for start in range(0, len(codes), 500):
            text = "".join(template.format(chr(code)) for code in codes[start : start + 500])
            data = text.encode("utf-8", "surrogatepass")
            assert native.with_offsets(data) == python.with_offsets(data), hex(codes[start])


@pytest.mark.parametrize(
    "template",
    ["5 \\{0} 3\n\n", "x\\{0}y\n\n", "\\{0}{{12}}{{34}} 5\n\n", "\\{0}12(a)\\{0}\n\n"],
)
def test_engines_agree_on_every_command(engines: Any, template: str) -> None:
    native, python = engines
    for name in [*COMMANDS, "foo", "unknowncommandwithaverylongname", "Q"]:
        data = template.format(name).encode()
        assert native.with_offsets(data) == python.with_offsets(data), name


@pytest.mark.parametrize(
    "template", ["5 {0} 3", "x {0} y", "{0}(12) {0}{0}", "5 cups {0} 2 {1} 7", "is {0} 5", "5{0}*2"]
)
def test_engines_agree_on_every_word(engines: Any, template: str) -> None:
    native, python = engines
    for word in [*WORDS, "foo", "x" * 40]:
        data = template.format(word, word.upper()).encode()
        assert native.with_offsets(data) == python.with_offsets(data), word


def test_the_version_is_a_plain_number() -> None:
    assert re.fullmatch(r"[1-9]\d*", NORMAL_FORM_VERSION)
