"""Model text must not steer the terminal; colour must follow the choice."""

from __future__ import annotations

import pytest

from consensuspr.console import ColorMode, make_console, one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("½ × √2 ≤ π 漢字\u2009b", "½ × √2 ≤ π 漢字\u2009b"),  # spaces of other widths stay
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("progress\r100%", "progress\\x0d100%"),
        ("c1 \x9b31m nul \x00 del \x7f", "c1 \\x9b31m nul \\x00 del \\x7f"),
        ("\u202eevil", "\\u202eevil"),  # right-to-left override
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("lone \ud800 surrogate", "lone \\ud800 surrogate"),
        ("tag \U000e0001", "tag \\U000e0001"),
    ],
)
def test_printable_writes_out_what_a_terminal_would_obey(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("short", 10, "short"),
        ("a\n b\t c", 10, "a b c"),
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghijk", 10, "abcdefghi…"),
        ("\x1b" * 9, 10, "\\x1b\\x1b\\…"),
    ],
)
def test_one_line(text: str, limit: int, shown: str) -> None:
    assert one_line(text, limit) == shown


def test_always_colours_a_pipe_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    make_console(ColorMode.ALWAYS).print("hit", style="bold green")
    assert "\x1b[1;32mhit\x1b[0m" in capsys.readouterr().out
