"""The jobs people come for, each a small class over the public filters."""

from bloomery.apps.caching import (
    AdmissionCache,
    AsgiCacheMiddleware,
    AsyncAdmissionCache,
    AsyncRedisStore,
    EdgeSummaries,
    RedisStore,
    WsgiCacheMiddleware,
    edge_summary,
)
from bloomery.apps.deduplicator import Deduplicator
from bloomery.apps.diskset import DiskSet
from bloomery.apps.mail import MailReport, deduplicate_mail, message_key
from bloomery.apps.revocation import (
    AsgiRevocationMiddleware,
    WsgiRevocationMiddleware,
    bearer_token_id,
)
from bloomery.apps.seen import SeenStore

__all__ = [
    "AdmissionCache",
    "AsgiCacheMiddleware",
    "AsgiRevocationMiddleware",
    "AsyncAdmissionCache",
    "AsyncRedisStore",
    "Deduplicator",
    "DiskSet",
    "EdgeSummaries",
    "MailReport",
    "RedisStore",
    "SeenStore",
    "WsgiCacheMiddleware",
    "WsgiRevocationMiddleware",
    "bearer_token_id",
    "deduplicate_mail",
    "edge_summary",
    "message_key",
]
