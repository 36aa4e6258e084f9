"""`bloomery version`, which the plain install has too."""

from bloomery._native import __version__
from bloomery.cli.terminal import emit_line

EXAMPLE = "bloomery version"


def version() -> int:
    """Print the version of bloomery."""
    emit_line(f"bloomery {__version__}")
    return 0


COMMANDS = [("version", version, EXAMPLE)]
