"""The version of connectx: of the package, and of the connectors that are connectx's own."""

from typing import Final

VERSION: Final = "0.2.0"
