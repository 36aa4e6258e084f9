"""How tests wait for what others do: for a condition, never for a fixed time.

Both say whether it came true, so that a test can tell what it saw instead:
`assert wait_until(server.ready), server.printed()`.
"""

import asyncio
import time
from collections.abc import Callable

# On two cores shared with a build, what takes one second alone may take ten; longer is a hang.
PATIENCE = 60.0


def wait_until(
    condition: Callable[[], object], seconds: float = PATIENCE, pause: float = 0.01
) -> bool:
    """Whether `condition` came true within so many seconds; it is looked at after each pause."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


async def wait_until_async(
    condition: Callable[[], object], seconds: float = PATIENCE, pause: float = 0.005
) -> bool:
    """The same, while the event loop goes on."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(pause)
    return True
