"""What the problems of a measured dataset are called."""

from __future__ import annotations


def problem_id(number: int) -> str:
    """Return the id of a problem, number counted from 0."""
    return f"generated-{number:07d}"
