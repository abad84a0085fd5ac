"""Sixteen bytes at once mean the same on x86-64, on 64-bit ARM and without vector instructions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from consensuspr import core

# The folder alone: what is compiled need not be there.
HEADER = Path(core.__file__).with_name("native") / "bytes16.h"

# Each function of the header against one byte after the other, on every byte at every place and
# on 100,000 others.
PROGRAM = r"""
#include <stdio.h>
#include "bytes16.h"

static uint64_t state = 20;

static uint8_t next_byte(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint8_t)(state >> 56);
}

static int differs(const uint8_t* text, uint8_t first, uint8_t last) {
    unsigned high = 0, within = 0, equal = 0, letters = 0;
    uint8_t small[16];
    for (int n = 0; n < 16; n++) {
        const uint8_t byte = text[n];
        high |= (unsigned)(byte >= 0x80) << n;
        within |= (unsigned)(first <= byte && byte <= last) << n;
        equal |= (unsigned)(byte == first) << n;
        letters |= (unsigned)(('a' <= byte && byte <= 'z') || ('A' <= byte && byte <= 'Z')) << n;
    }
    store16(small, small16(load16(text)));
    for (int n = 0; n < 16; n++)
        if (small[n] != (text[n] | 0x20))
            return 1;
    return bits16(load16(text)) != high
        || bits16(within16(load16(text), first, last)) != within
        || bits16(equal16(load16(text), first)) != equal
        || letters16(load16(text)) != letters;
}

int main(void) {
    uint8_t text[17];
    unsigned failed = 0, tried = 0;
    for (int byte = 0; byte < 256; byte++)
        for (int place = 0; place < 16; place++) {
            memset(text, 'x', sizeof text);
            text[place] = (uint8_t)byte;
            failed += differs(text, (uint8_t)byte, 0xFF) + differs(text, 0, (uint8_t)byte);
            tried += 2;
        }
    for (int turn = 0; turn < 100000; turn++) {
        for (int n = 0; n < 17; n++)
            text[n] = next_byte();
        uint8_t first = next_byte(), last = next_byte();
        if (first > last) {
            const uint8_t swapped = first;
            first = last;
            last = swapped;
        }
        failed += differs(text + turn % 2, first, last);
        tried++;
    }
    printf("%u of %u differ\n", failed, tried);
    return failed != 0;
}
"""


@pytest.mark.parametrize(
    ("compiler", "runner"),
    [
        (["cc"], []),
        (["cc", "-DCONSENSUSPR_PLAIN_BITS"], []),
        (["aarch64-linux-gnu-gcc", "-static"], ["qemu-aarch64"]),
    ],
    ids=["this processor", "no vectors", "64-bit ARM"],
)
def test_bytes16(compiler: list[str], runner: list[str], tmp_path: Path) -> None:
    for command in (compiler[0], *runner):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed")
    source, program = tmp_path / "bytes16.c", tmp_path / "bytes16"
    source.write_text(PROGRAM)
    warnings = ["-Wall", "-Wextra", "-Werror"]
    build = [*compiler, "-O2", *warnings, "-I", str(HEADER.parent), str(source), "-o", str(program)]
    subprocess.run(build, check=True)
    ran = subprocess.run([*runner, str(program)], capture_output=True, text=True)
    assert ran.stdout == "0 of 108192 differ\n", ran
