"""Elements of SVG and HTML as safe markup: everything that is not markup is escaped."""

from __future__ import annotations

from markupsafe import Markup, escape

from consensuspr.console import printable


def safe(value: object) -> Markup:
    """Return a value as markup; control and other invisible characters are written out.

    Args:
        value: markup is left as it is, a float gets at most two decimals.
    """
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        return Markup(f"{value:.2f}".rstrip("0").rstrip(".") or "0")
    return escape(printable(str(value)))


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """Return one element.

    Args:
        tag: its name, a literal of this package.
        children: markup as it is, anything else escaped.
        attributes: ``class_`` is written ``class`` and ``data_tip`` is written ``data-tip``;
            None leaves one out.
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(Markup(name.rstrip("_").replace("_", "-")), safe(value))
        for name, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(safe(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), written, inside)
