"""What must be true of every answer that a guard gave while its servers went and came."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

from bloomery.errors import SourceUnavailable
from integration.guard.changes import changes
from integration.guard.traffic import OPTIONS, TIMEOUT, TTL, Seen, Traffic

# A question of a look-up, and one that waits for another's; more than that on a busy machine.
BOUND = 2 * TIMEOUT + 4.0
# Between the cache's answer and that of whoever waits for the same look-up.
MOMENT = 0.25
# Between the source's answers to a group of look-ups that waited and the last of them being told.
IN_ON_ANSWER = 2.0
Window = tuple[float, float]  # from the moment the source goes until all is well again


def judge(traffic: Traffic, outages: list[Window]) -> list[str]:
    """What is wrong; each with the guard it is wrong with."""
    found = Counter(
        wrong
        for one in traffic.seen
        for wrong in _judge(traffic, one, any(_within(one, outage) for outage in outages))
    )
    wrongs = [f"{what} ({times} times)" for what, times in found.items()]
    wrongs += set(_ages(traffic)) | set(_counts(traffic))
    if traffic.policy == "queue":
        wrongs += set(_unheard(traffic))
    if changes(traffic.postgres, traffic.name) != traffic.written:
        wrongs.append("the writes are not in the source, each once and in order")
    return [f"{traffic.name}: {wrong}" for wrong in wrongs]


def _within(one: Seen, outage: Window) -> bool:
    return one.ended >= outage[0] and one.began <= outage[1]


def _judge(traffic: Traffic, one: Seen, down: bool) -> Iterator[str]:
    policy, answer = traffic.policy, one.answer
    if one.ended - one.began > BOUND:
        yield f"{one.what} took longer than {BOUND:g} s"
    if answer is None:
        fails = ("raise", "stale") if one.what == "look" else ("raise", "stale", "maybe")
        if not isinstance(one.problem, SourceUnavailable) or policy not in fails:
            yield f"{one.what}: {one.problem!r}"
        elif not down:
            yield f"{one.what} raises while the source is there: {one.problem}"
        return
    if one.what in ("add", "remove"):
        if answer.by not in ("source", "unconfirmed"):
            yield f"a write by {answer.by}"
    elif answer.by != "unconfirmed" and one.what == "look":
        said = answer.value if answer.found else None
        if said not in traffic.history[one.key].between(one.began, one.ended):
            yield f"a wrong answer by {answer.by}"
    if answer.by == "stale" and policy != "stale":
        yield f"a stale answer with {policy}"
    if answer.by == "unconfirmed":
        if policy not in ("queue", "maybe"):
            yield f"an unconfirmed answer with {policy}"
        if one.what == "look" and not answer.found:
            yield "an unconfirmed no"
        if (answer.queued is None) != (policy == "maybe"):
            yield f"queued is {answer.queued!r} with {policy}"
    if one.without_source and not down:
        yield f"{one.what} is {answer.by} while the source is there"


def _by_key(traffic: Traffic, what: str) -> dict[str, list[Seen]]:
    seen = defaultdict(list)
    for one in traffic.seen:
        if one.what == what:
            seen[one.key].append(one)
    return seen


def _ages(traffic: Traffic) -> Iterator[str]:
    """A cached answer is at most a TTL old; a stale one at least its jittered TTL."""
    told = _by_key(traffic, "told")
    for key, looks in _by_key(traffic, "look").items():
        sources = [one for one in looks if one.answer is not None and one.answer.by == "source"]
        # What may have been cached: a drain's too, before each of its answers is told; and part of
        # a batch that failed.
        drained = [replace(one, began=one.began - IN_ON_ANSWER) for one in told[key]]
        asked = [*sources, *drained, *(one for one in looks if one.answer is None)]
        for one in looks:
            by = None if one.answer is None else one.answer.by
            if by == "cache" and not any(
                one.began - TTL - MOMENT <= other.ended and other.began <= one.ended + MOMENT
                for other in asked
            ):
                yield "a cached answer is older than the TTL"
            if by == "stale":
                # Of several who asked at once nobody knows who did it for all, and when.
                alone = [other for other in sources if other.ended < one.began]
                alone = [other for other in alone if sum(_overlap(other, x) for x in looks) == 1]
                if alone and one.ended < alone[-1].began + TTL * 0.9:
                    yield "an answer is stale before its time"


def _overlap(one: Seen, other: Seen) -> bool:
    return one.began <= other.ended and other.began <= one.ended


def _unheard(traffic: Traffic) -> Iterator[str]:
    """Each look-up that waited was answered later, and rightly."""
    told = defaultdict(list)
    for one in traffic.seen:
        if one.what == "told" and one.answer is not None:
            told[one.answer.queued].append(one)
    for one in traffic.seen:
        if one.what != "look" or one.answer is None or one.answer.by != "unconfirmed":
            continue
        later = [heard for heard in told[one.answer.queued] if heard.ended >= one.began]
        if not later:
            yield "a look-up that waited was never answered"
        for heard in later:
            assert heard.answer is not None
            said = heard.answer.value if heard.answer.found else None
            if said not in traffic.history[one.key].between(one.began, heard.ended):
                yield "on_answer was told a wrong answer"


def _counts(traffic: Traffic) -> Iterator[str]:
    """The guard counted every answer, as we did."""
    looks = [one.answer for one in traffic.seen if one.what == "look" and one.answer is not None]
    counted = traffic.call("info")["answers"]
    ours = Counter(answer.by for answer in looks)
    if counted.pop("filter") < ours.pop("filter"):  # a batch that failed had some too
        yield "not every no was counted"
    if counted != {by: ours[by] for by in counted}:
        yield f"counted {counted}, seen {dict(ours)}"


# After the source is back: the longest pause of the breaker, one question that still hangs, the
# drainer's pause, and what the queue holds.
SETTLED = OPTIONS["most_retry"] + TIMEOUT + OPTIONS["retry"] + 15.0
