"""Attacks on consensuspr as commands: faults, hostile input, and long runs.

``python -m reliability.chaos`` makes faults while clients score,
``python -m reliability.fuzz`` looks for input that makes a part fail or disagree, and
``python -m reliability.soak`` lets a server live under load and small accidents for an hour.  Each
ends with code 1 if a rollout was lost or scored wrong.
"""
