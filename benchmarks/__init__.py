"""How fast it is and what it needs: ``python -m benchmarks``.

One command runs every suite of ``benchmarks/suites``, each in a process of its own, and prints
the project's targets beside the figures.  ``benchmarks/quality`` (how well NCR finds nodes) and
``benchmarks/construction`` (how well datasets are built) are commands of their own.
"""
