"""Run the commands as ``python -m consensusbench.cli``."""

import sys

from consensusbench.cli import main

sys.exit(main())
