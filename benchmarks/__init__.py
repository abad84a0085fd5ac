"""Speed: ``python -m benchmarks``; each script also runs alone (``benchmarks.core``).

``benchmarks.quality`` (how well NCR finds nodes), ``benchmarks.construction`` (how well datasets
are built) and ``benchmarks.guard`` (instruction counts) are commands of their own.
"""
