"""Run the commands as ``python -m consensuspr.cli``."""

import sys

from consensuspr.cli import main

sys.exit(main())
