"""The internals of uvicorn that a connection of HTTP is built on: its protocol for httptools, a
request's cycle, flow control and the state that connections share.

uvicorn says nothing about how these change, so pyproject.toml bounds its version above, only this
module imports them, and a test names every attribute of them that is used: after an upgrade it says
what is missing before a client does.
"""

from __future__ import annotations

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

__all__ = ["FlowControl", "HttpToolsProtocol", "RequestResponseCycle", "ServerState"]
