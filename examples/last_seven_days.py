"""Seen in the last 7 days? One reminder a week for each customer, however often they qualify.

A wrong maybe costs one reminder that is not sent, one in ten thousand here. Nobody gets a second
one within seven days; after eight days at the latest a customer can get the next. The service is
restarted every night, and time goes on while it is down.
"""

import tempfile
from pathlib import Path

from bloomery import RotatingBloomFilter

DAY = 86_400.0


class Clock:
    """Time that passes when we say so; a service leaves `clock` out and has the machine's."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def main() -> None:
    clock = Clock()
    sent: dict[str, float] = {}  # the truth, to check by
    reminders = 0
    recent = RotatingBloomFilter(20_000, 1e-4, window="7d", generations=7, clock=clock)
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "recent.bloom"
        for day in range(30):
            for number in range(day % 3, 6_000, 3):  # a third of them qualify each day
                customer = f"customer-{number}"
                if customer not in recent:  # definitely not in the last 7 days
                    recent.add(customer)  # only now: to add a key again makes it new again
                    last = sent.get(customer, -DAY * 100)
                    assert clock.now - last >= 7 * DAY, "two within seven days"
                    sent[customer] = clock.now
                    reminders += 1
            recent.save(state)
            clock.now += DAY  # the night: nobody runs
            recent = RotatingBloomFilter.load(state)
            recent.set_clock(clock)
        found = recent.generation_of("customer-0")
        size = recent.nbytes

    assert len(sent) > 5_990, "hardly anybody is left out"
    print(f"{reminders:,} reminders to {len(sent):,} customers in 30 days; {size:,} bytes")
    print(f"customer-0: {found or 'not in the last 7 days'}")


if __name__ == "__main__":
    main()
