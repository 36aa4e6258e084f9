"""Mail arrives by several routes; each message is delivered once.

Here a wrong maybe would lose a message, so a maybe is checked against the store. A no needs no
check: the message is definitely new. That spares a look-up for all but the duplicates.
"""

from email.message import EmailMessage

from bloomery import BloomFilter


def key_of(message: EmailMessage) -> str | tuple[str, ...]:
    """The Message-ID, or sender, date, subject and body where there is none."""
    if (ident := message["Message-ID"]) is not None:
        return str(ident)
    # A tuple keeps its parts apart: ("ab", "c") is not ("a", "bc").
    head = (str(message[name] or "") for name in ("From", "Date", "Subject"))
    return (*head, message.get_content())


class Mailbox:
    """Delivers what is new; `store` stands for the database that knows exactly."""

    def __init__(self, capacity: int) -> None:
        self.seen = BloomFilter(capacity=capacity, error_rate=0.001)
        self.store: dict[str | tuple[str, ...], EmailMessage] = {}
        self.lookups = 0

    def deliver(self, message: EmailMessage) -> bool:
        key = key_of(message)
        if not self.seen.add(key):  # maybe a duplicate: ask the store
            self.lookups += 1
            if key in self.store:
                return False
        self.store[key] = message
        return True


def mail(number: int, with_id: bool) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["Subject"] = "forge@example.org", f"Report {number}"
    if with_id:
        message["Message-ID"] = f"<{number}@example.org>"
    message.set_content(f"Iron, {number} bars.\n")
    return message


def main() -> None:
    box = Mailbox(capacity=400)
    routes = [*range(400), *range(0, 400, 4)]  # every fourth message comes twice
    delivered = sum(box.deliver(mail(n, with_id=n % 2 == 0)) for n in routes)
    assert delivered == 400, "each message once, none lost"
    assert 100 <= box.lookups <= 105, "the store is asked about duplicates, and hardly ever else"
    print(f"{len(routes):,} arrived, {delivered:,} delivered, {box.lookups} look-ups")


if __name__ == "__main__":
    main()
