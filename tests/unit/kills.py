"""Work in a process that ends by kill -9."""

import os
import signal
import traceback
import warnings
from collections.abc import Callable
from os import _exit


def killed(work: Callable[[], object]) -> None:
    """Do this in the child of a fork, which is killed at the latest when the work is over."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns where there are threads
        child = os.fork()
    if not child:
        try:
            work()
        except BaseException:  # noqa: BLE001 (it must not get into the parent's code)
            traceback.print_exc()
            _exit(1)
        die()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def die() -> None:
    """End this process, now."""
    os.kill(os.getpid(), signal.SIGKILL)
