"""Run the commands as ``python -m consensuspr.cli``."""

import sys

from consensuspr.cli.app import main

sys.exit(main())
