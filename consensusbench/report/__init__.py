"""One self-contained HTML page about scored rollouts.

``page`` gathers what the page says and writes it; ``charts`` draws inline SVG of what ``data``
computes.  The page makes no request and runs only its own script.  Packages that the base install
lacks (``jinja2``) are imported by the modules of this package, and the command asks for them first.
"""
