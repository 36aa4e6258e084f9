"""A server's filters over HTTP, used as local ones are: one client waits, the other is asyncio's.

operation ──calls──> Call (what to send, how to read the answer) ──Client or AsyncClient──> sent
"""

from bloomery.client.aio import AsyncClient
from bloomery.client.aioremote import AsyncRemoteFilter
from bloomery.client.remote import RemoteFilter
from bloomery.client.sync import Client

__all__ = ["AsyncClient", "AsyncRemoteFilter", "Client", "RemoteFilter"]
