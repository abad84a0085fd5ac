"""Hopeless answers are found in linear time, and sane ones are let through."""

from __future__ import annotations

import pytest

from consensuspr.scoring.answers import screening
from consensuspr.scoring.answers.screening import screen
from tests.linear import assert_linear

HOPELESS = [
    "10^{10^{10}}", "10^{10^{10}}+x", "9^9^9^9", "2^2^2^2^2^2", "2^3^4^5", "x^{2^{2^{2^{2^2}}}}",
    "2^{99999999}", "(1+10^{-9})^{10^9}", "(2^{1000000})^{1000}", "(10^{10})!", "((10!)!)!",
    "100000000!", "n!!", r"\gcd(10^{10^6}, 10^{10^5})", r"\binom{10^9}{5\cdot 10^{10^8}}",
    "(" * 60 + "1" + ")" * 60, "1" * 2000, "1e99999", "x" * 1001,
]  # fmt: skip

SANE = [
    "12", r"\frac{2^{2009}-1}{3\cdot 2^{2008}-1}", r"2011^{2009}\cdot(1005^{2011}-1004^{2011})",
    r"\frac{2021055^{2011} - 2019044^{2011}}{2011^2}",
    r"\frac{(40!)^4}{(20!)^6 \cdot 10! \cdot 30!}", r"{40 \choose 10} {40 \choose 20}^3",
    r"\binom{2023}{5}", "2023!", r"\sum_{k=1}^{2009} k", r"\sum_{n=0}^{\infty} \frac{x^n}{n!}",
    r"\int_0^1 x^2 dx", "e^{x^{2}}", "2^3^2", "x^{2^{3}}", "6.02 \\times 10^{23}",
    "x^{100}+y^{n+1}", r"\begin{pmatrix} 1&2&3&4&5&6&7\\ 1&2&3&4&5&6&7 \end{pmatrix}",
    r"\det\begin{pmatrix} a & b \\ c & d \end{pmatrix}", r"\sqrt{\sqrt{11}+\sqrt{194}}",
]  # fmt: skip


@pytest.mark.parametrize("text", HOPELESS)
def test_hopeless(text: str) -> None:
    assert screen(text) is not None


@pytest.mark.parametrize("text", SANE)
def test_sane(text: str) -> None:
    assert screen(text) is None


@pytest.mark.parametrize(
    "run",
    ["^", "^{", "!", "2^", "(", "()", "9"],
)
def test_time_grows_linearly(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The limit on the length would hide what a pattern costs.
    monkeypatch.setattr(screening, "MAX_CHARS", 1 << 20)
    assert_linear(screen, lambda size: run * (size // len(run)))
