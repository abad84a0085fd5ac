"""The release number, kept in this one place.

``setup.py`` reads it for the distribution and the server sends it in every reply.  A
constant rather than a look-up in the installed metadata, so that a source tree on the
path and an installed wheel answer alike.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
