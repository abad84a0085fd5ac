"""How well nodes separate right from wrong rollouts: the figures of ``docs/quality.md``."""
