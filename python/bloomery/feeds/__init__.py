"""Signed feeds: a filter that others keep a copy of, current by deltas, and answer from offline.

    publish ──> keys, manifest, delta ──> a folder that any web server or bucket serves
                                               │
    Subscriber ──> sources (HTTP, a folder) <──┘
        ├──> manifest, keys    is it what the publisher signed, and not an older one?
        ├──> copies, delta     a folder of its own: files first, then the manifest, in one step
        └──> the filter in memory, which answers; urls for what Safe Browsing would look up

A manifest is the one file that changes. It is replaced last, when all files that it names are on
the disk, and those that it named before stay for a grace: so whoever is killed, publisher or
fetcher, leaves a whole feed or a whole copy. docs/feeds.md has the format.
"""

from bloomery.feeds.keys import PrivateKey, PublicKey
from bloomery.feeds.manifest import Manifest
from bloomery.feeds.publisher import publish
from bloomery.feeds.subscriber import Subscriber, Update
from bloomery.feeds.urls import canonical_url, url_expressions, url_key

__all__ = [
    "Manifest",
    "PrivateKey",
    "PublicKey",
    "Subscriber",
    "Update",
    "canonical_url",
    "publish",
    "url_expressions",
    "url_key",
]
