"""Real servers for tests, each a process of its own in a folder of its own, on a free port.

Every one can be stopped, killed (`kill -9`), frozen and started again on the same data. What a
server prints goes to `log` in its folder, and into the message when it does not come up.
"""

from integration.servers.bloomery_server import BloomeryServer, Serve
from integration.servers.haproxy import HaProxy
from integration.servers.postgres import PostgresServer
from integration.servers.process import Server, free_port, free_ports
from integration.servers.redis_cluster import RedisCluster
from integration.servers.redis_sentinel import Sentinel
from integration.servers.redis_server import RedisServer, StartRedis
from waiting import PATIENCE, wait_until

__all__ = [
    "PATIENCE",
    "BloomeryServer",
    "HaProxy",
    "PostgresServer",
    "RedisCluster",
    "RedisServer",
    "Sentinel",
    "Serve",
    "Server",
    "StartRedis",
    "free_port",
    "free_ports",
    "wait_until",
]
