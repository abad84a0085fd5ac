"""How well matching finds the steps of right solutions: the figures of ``docs/quality.md``."""
