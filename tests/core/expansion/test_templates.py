"""Orders and brackets of sums and products, as templates."""

from __future__ import annotations

import pytest

from consensuspr.core.expressions.derive import product_templates, sum_templates


def written(templates: tuple[tuple[int, str], ...]) -> list[str]:
    """Return the templates filled with a, b, c, ..."""
    return [template.format(*"abcdefgh") for _, template in templates]


@pytest.mark.parametrize(
    ("signs", "forms"),
    [
        ("-", ["-a"]),
        ("++", ["a+b", "b+a"]),
        ("+-", ["a-b"]),
        ("--", ["-a-b"]),
        ("+--", ["a-b-c", "a-c-b", "a-(b+c)", "a-(c+b)"]),
        ("++-", ["a+b-c", "a-c+b", "b+a-c", "b-c+a", "(a+b)-c", "(b+a)-c"]),
        ("+++++", ["a+b+c+d+e"]),
    ],
)
def test_sums(signs: str, forms: list[str]) -> None:
    assert written(sum_templates(signs)) == forms


@pytest.mark.parametrize(
    ("roles", "forms"),
    [
        ("nn", ["a*b", "b*a"]),
        ("nd", ["a/b"]),
        ("ns", ["a*b"]),  # never x*3
        ("nb", ["a*b", "b*a"]),
        ("ss", ["a*b", "b*a"]),
        ("d", ["1/a"]),
        ("n1d", ["a*b/c", "b/c*a", "a*(b/c)", "(b/c)*a"]),  # never 1*a/c
        ("ndd", ["a/b/c", "a/c/b", "a/(b*c)", "a/(c*b)"]),
        ("nnnnn", ["a*b*c*d*e"]),
    ],
)
def test_products(roles: str, forms: list[str]) -> None:
    assert written(product_templates(roles)) == forms


def test_products_with_a_divisor_take_it_with_any_factor() -> None:
    forms = written(product_templates("nnd"))
    assert forms[0] == "a*b/c"
    assert set(forms) == {
        "a*b/c", "a/c*b", "b*a/c", "b/c*a",
        "(a/c)*b", "b*(a/c)", "(b/c)*a", "a*(b/c)", "(a*b)/c", "(b*a)/c",
    }  # fmt: skip


@pytest.mark.parametrize("roles", ["nnnn", "nnnd", "nndd", "ssss", "n1dd"])
def test_templates_are_distinct_and_the_original_is_cheapest(roles: str) -> None:
    templates = product_templates(roles)
    assert templates[0][0] == 0
    assert len({text for _, text in templates}) == len(templates)
    assert all(cost > 0 for cost, _ in templates[1:])
