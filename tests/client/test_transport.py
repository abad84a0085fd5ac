"""What a client does to its process."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

# Page faults of taking and freeing the memory of eight requests, after it was done once.
FAULTS = """
import resource, sys
from consensuspr.client.transport import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [bytearray(b"x") * (1 << 20) for _ in range(8)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other rules")
def test_memory_of_messages_is_kept_for_the_next_ones() -> None:
    environment = {name: value for name, value in os.environ.items() if "MALLOC" not in name}

    def faults(how: str) -> int:
        command = [sys.executable, "-c", FAULTS, how]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert faults("keep") < faults("leave") / 4
