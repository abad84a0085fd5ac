"""Speed: ``python -m benchmarks``; each script also runs alone (``benchmarks.core``).

``benchmarks.quality`` (how well NCR separates right from wrong) and ``benchmarks.guard``
(instruction counts) are commands of their own.
"""
