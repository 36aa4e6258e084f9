"""What tests of policies share."""

from collections.abc import Callable, Iterator

import pytest

from integration.policies.load import Load
from integration.resp.wire import Connection
from integration.servers import Serve

# A new filter (its name, and words of BF.RESERVE) on a server of its own, and a load on it.
Start = Callable[..., Load]


@pytest.fixture
def start(serve: Serve) -> Iterator[Start]:
    """Start a server with options, and a load on a new filter of it."""
    loads: list[Load] = []

    def begin(name: str, *words: str, options: tuple[str, ...] = ()) -> Load:
        server = serve(*options)
        loads.append(Load(server, Connection(server.resp_port), ""))
        loads.append(loads[-1].beside(name, *words))
        return loads[-1]

    yield begin
    for load in loads:
        load.connection.close()
