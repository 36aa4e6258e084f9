"""`python -m bloomery` is the `bloomery` command."""

import sys

from bloomery.cli import main

if __name__ == "__main__":
    sys.exit(main())
