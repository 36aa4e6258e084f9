"""What every test shares: how hard hypothesis tries, and what a missing component means.

HYPOTHESIS_PROFILE chooses the effort: `fast` while working, `ci` in `make test`, `soak` for the
long runs (which also bring in the tests marked `soak`). Without it: `ci` under CI, else `fast`.
"""

import gc
import importlib
import os
import signal
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

# Begun in the background of a shell (`make test &`) it ignores Ctrl-C, and so would all that it
# starts, of which some is to be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of tests start processes, and half of a start was to compile what bytecode would keep.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The tests share two cores with each other and, on a developer's machine, with a build: a deadline
# for each example would fail on the neighbour's load. pytest-timeout catches a real hang.
_SHARED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("fast", max_examples=10, **_SHARED)
# Derandomised: a red run is the change's fault and can be repeated. New examples are soak's job.
settings.register_profile("ci", max_examples=50, derandomize=True, print_blob=True, **_SHARED)
settings.register_profile("soak", max_examples=5000, print_blob=True, **_SHARED)


def under_ci() -> bool:
    """Whether a component that is missing is an error (CI=true) or a reason to skip."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if under_ci() else "fast")
settings.load_profile(PROFILE)


def effort(fast: int, ci: int, soak: int) -> int:
    """How many rounds a loop of our own (mutations, threads) makes under the profile chosen."""
    return {"fast": fast, "ci": ci, "soak": soak}[PROFILE]


def missing(what: str) -> NoReturn:
    """Skip the test for want of `what`, or fail it under CI, so that nothing rots unrun."""
    if under_ci():
        pytest.fail(f"{what} is missing, and under CI nothing may be", pytrace=False)
    pytest.skip(f"{what} is missing", allow_module_level=True)


def require(module: str) -> Any:
    """An optional module, imported; without it the test is skipped, or fails under CI."""
    try:
        return importlib.import_module(module)
    except ImportError:
        missing(f"the module {module}")


def first_fast(cases: Sequence[Any]) -> list[Any]:
    """Cases that cost a process each: one for `make test-fast`, all of them for `make test`."""
    return [
        cases[0],
        *(
            pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.slow)
            for case in cases[1:]
        ),
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests marked `soak` to `make soak`, and begin with those marked `long`: else, in
    the end, all workers would wait for one of them."""
    if PROFILE != "soak":
        left = [item for item in items if item.get_closest_marker("soak") is not None]
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = [item for item in items if item.get_closest_marker("soak") is None]
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Let no search for garbage look through ten thousand tests again, here or in a fork: 0.3 s."""
    gc.freeze()
