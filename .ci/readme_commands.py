"""Print the commands of the README's ``bash`` blocks, in order, as one script.

``.ci/run`` runs what this prints, so that the README cannot promise what does not work.
"""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(r"^```bash\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def main() -> None:
    """Print every block."""
    for block in BLOCK.findall(README.read_text(encoding="utf-8")):
        print(block, end="")


if __name__ == "__main__":
    main()
