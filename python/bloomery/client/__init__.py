"""A server's filters over HTTP, used as local ones are: one client waits, the other is asyncio's.

operation ──operations──> Request (what to send, how to read the response) ──transport──> the server

The modules for asyncio are written; `sync` and `transport` are generated from them.
"""

from bloomery.client.aio import AsyncClient, AsyncRemoteFilter
from bloomery.client.sync import Client, RemoteFilter

__all__ = ["AsyncClient", "AsyncRemoteFilter", "Client", "RemoteFilter"]
