"""Scrapy: a dupefilter that takes little memory, is exact if wanted, and can be shared by spiders.

    settings     BLOOMERY_* of a project, checked before anything is crawled
    fingerprints what was seen: in a filter, an exact set, or a filter that spiders share
    dupefilter   `BloomDupeFilter`, Scrapy's DUPEFILTER_CLASS, over one of these
    queue        requests in a file of SQLite, each there until its page is done
    scheduler    `JobScheduler`, Scrapy's SCHEDULER, over that queue: a job that outlives kill -9

**Which order of writes loses no page.** Scrapy's own queues on disk are whole only after they were
closed: after a kill their files say that nothing waits, while the dupefilter knows those requests
as seen, and their pages are never fetched. So `JobScheduler` writes a request into its queue before
its fingerprint is marked, takes it out only when its page is done (the links on it are in the queue
by then), and marks all that waits again when a job is resumed. Killed at any point, a request is in
the queue, or its page is done, or nobody has heard of it: then the page that links to it is in the
queue. A page that was in flight is fetched again.
"""

from bloomery.integrations.scrapy.dupefilter import BloomDupeFilter
from bloomery.integrations.scrapy.scheduler import JobScheduler

__all__ = ["BloomDupeFilter", "JobScheduler"]
