"""One self-contained HTML page about scored rollouts.

``gather`` computes what the page says, ``page`` writes it; charts are inline SVG.  The page makes
no request and runs only its own script.  Why it is built this way: ``docs/design/report.md``.
Packages that the base install lacks (``jinja2``) are imported by the modules of this package, and
the command asks for them first.
"""
