"""Mail arrives by several routes; each message is delivered once, and an old folder is tidied.

A wrong maybe would lose a message, so the set is exact: a filter in front of SQLite. A message is
recorded when its delivery succeeded: one that failed is delivered the next time it comes.
"""

import mailbox
import tempfile
from pathlib import Path

from bloomery.apps import Deduplicator, DiskSet, deduplicate_mail, message_key


def mail(number: int, with_id: bool, route: str) -> bytes:
    """A message as it came by one route; another adds another Received."""
    ident = f"Message-ID: <{number}@example.org>\n" if with_id else ""
    head = f"Received: by {route}\nFrom: forge@example.org\nSubject: Report {number}\n{ident}"
    return f"{head}\nIron, {number} bars.\n".encode()


def deliver(arrived: list[bytes], folder: Path) -> int:
    """Deliver what was not delivered before; a disk that is full for a moment loses nothing."""
    box = mailbox.Maildir(folder / "Maildir")
    failures = 3
    with DiskSet(folder / "delivered.sqlite") as delivered:
        dedup: Deduplicator[bytes] = Deduplicator(delivered, key=message_key)
        while arrived:
            message = arrived.pop(0)
            try:
                with dedup.once(message) as first:
                    if first and failures:
                        failures -= 1
                        raise OSError("no space left")
                    if first:
                        box.add(message)
            except OSError:
                arrived.append(message)  # the queue brings it again
    return len(box)


def main() -> None:
    routes = [(n, "one") for n in range(400)] + [(n, "two") for n in range(0, 400, 4)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = deliver([mail(n, n % 3 > 0, route) for n, route in routes], folder)
        assert count == 400, "each message once, none lost"
        old = mailbox.mbox(folder / "old.mbox")  # from before there was a filter
        for number, route in routes[350:450]:
            old.add(mail(number, number % 3 > 0, route))
        old.close()
        report = deduplicate_mail([folder / "Maildir", folder / "old.mbox"])
        assert report.duplicates == 100, "all of it, since the folder has each of them"
    print(f"{len(routes)} arrived, {count} delivered; {report.duplicates} more in the old file")


if __name__ == "__main__":
    main()
