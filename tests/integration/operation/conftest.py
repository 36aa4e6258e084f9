"""Certificates that the tests of this folder share."""

from copy import copy
from pathlib import Path

import pytest

from unit.service.certificates import Pairs


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Root and intermediate, in a folder for all tests."""
    return Pairs(tmp_path_factory.mktemp("chain"))


@pytest.fixture
def pairs(chain: Pairs, tmp_path: Path) -> Pairs:
    """The same chain, for certificates in the test's own folder."""
    own = copy(chain)
    own.folder = tmp_path
    return own
