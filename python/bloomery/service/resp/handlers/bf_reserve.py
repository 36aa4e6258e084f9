"""BF.RESERVE: a filter of any kind, made as its words say; and as other commands make one."""

from __future__ import annotations

from typing import Any

from bloomery.service.resp import limits
from bloomery.service.resp.arguments import decimal, integer, options
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.handlers.membership import filter_at
from bloomery.service.resp.replies import EXISTS, OK, Failure
from bloomery.service.resp.table import command
from bloomery.sizing import MIN_ERROR_RATE

_MOST_RATE = 0.25
KINDS = ("bloom", "scalable", "counting", "deletable", "cuckoo", "rotating", "bank")
# What only some kinds have, by the word that sets it.
_OF_KINDS = {
    "WINDOW": "window",
    "GENERATIONS": "generations",
    "COUNTERBITS": "counter_bits",
    "REGIONS": "regions",
    "HASHER": "hasher",
}
# A filter's policy, by the word that sets each field.
POLICY = {
    "ONFULL": "on_full",
    "FULLAT": "full_at",
    "WARNAT": "warn_at",
    "WARNWITHIN": "warn_within",
    "GRACE": "grace",
}


def settings_of(
    client: ClientState,
    rate: float,
    capacity: int,
    expansion: int,
    *,
    nonscaling: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """Return the settings of a filter that BF commands create: one that grows, unless it is
    nonscaling or its expansion is 0."""
    settings = client.context.settings
    rate = min(rate, _MOST_RATE)
    grows = expansion > 0 and not nonscaling
    chosen: dict[str, Any] = {
        "capacity": capacity,
        "error_rate": rate,
        "expansion": expansion if grows else 0,
    }
    kind = more.pop("kind", None)
    if kind is None and ("on_full" not in more or not grows):
        kind = None if grows else "bloom"
        # A rate that ours do not go down to is RedisBloom's to keep.
        redisbloom = settings.bf_layout == "redisbloom" or (rate < MIN_ERROR_RATE and not more)
        if redisbloom:
            kind = "redisbloom"
            chosen |= {"expansion": expansion, "nonscaling": not grows}
    return {"kind": kind, **chosen, **more}


def default_settings(client: ClientState) -> dict[str, Any]:
    """Return the settings of a filter that an add creates."""
    settings = client.context.settings
    rate, size = settings.bf_error_rate, settings.bf_initial_size
    return settings_of(client, rate, size, settings.bf_expansion_factor)


@command(
    "BF.RESERVE",
    "key error_rate capacity [EXPANSION n] [NONSCALING] [KIND kind [WINDOW time] [GENERATIONS n] "
    "[COUNTERBITS 4|8] [REGIONS n]] [HASHER name] [ONFULL grow|rotate|reject|alert] [FULLAT share] "
    "[WARNAT share] [WARNWITHIN time] [GRACE time]",
    most=None,
    write=True,
    does="create",
)
async def reserve(client: ClientState, words: list[bytes]) -> str:
    """Make an empty filter."""
    name, rest = words[0], words[3:]
    rate = decimal(words[1])
    if rate is None:
        raise Failure("ERR bad error rate")
    if not 0 < rate < 1:
        raise Failure("ERR error rate must be in the range (0.000000, 1.000000)")
    capacity = integer(words[2])
    if capacity is None:
        raise Failure("ERR bad capacity")
    ours = not {b"KIND", b"ONFULL"}.isdisjoint(word.upper() for word in rest)
    most = client.context.settings.max_capacity if ours else limits.MAX_CAPACITY
    if not 1 <= capacity <= most:
        raise Failure(f"ERR capacity must be in the range [1, {most}]")
    expansion, nonscaling, more = _options(client, rest)
    if filter_at(client, name, "bf") is not None:
        raise EXISTS
    settings = settings_of(client, rate, capacity, expansion, nonscaling=nonscaling, **more)
    await client.context.commands.create(name, **settings)
    return OK


def _options(client: ClientState, rest: list[bytes]) -> tuple[int, bool, dict[str, Any]]:
    """Read what follows the capacity: the expansion, whether it is nonscaling, and what else there
    is."""
    given, _ = options(rest, ("EXPANSION", "KIND", *_OF_KINDS, *POLICY), ("NONSCALING",))
    expansion, more = client.context.settings.bf_expansion_factor, dict[str, Any]()
    nonscaling = "NONSCALING" in given
    for word, value in given.items():
        if word == "NONSCALING":
            continue
        if value is None:
            raise Failure(
                "ERR no expansion" if word == "EXPANSION" else f"ERR {word} needs a value"
            )
        if word == "EXPANSION":
            number = integer(value)
            if number is None:
                raise Failure("ERR bad expansion")
            if nonscaling and number:
                raise Failure("Nonscaling filters cannot expand")
            expansion = number
        elif word in POLICY:
            more[POLICY[word]] = policy_value(value)
        else:
            name = _OF_KINDS.get(word, "kind")
            more[name] = _value(name, value)
    if "kind" in more:
        for word in ("EXPANSION", "NONSCALING"):
            if word in given:
                raise Failure(f"ERR {word} and KIND do not go together: ONFULL is for any kind")
    if not 0 <= expansion <= limits.MAX_EXPANSION:
        raise Failure(f"ERR expansion must be in the range [0, {limits.MAX_EXPANSION}]")
    return expansion, nonscaling, more


def policy_value(word: bytes) -> float | str:
    """A number, or else the text: `service/domain/policy.py` says what is right."""
    number = decimal(word)
    return word.decode("utf-8", "replace") if number is None else number


def _value(name: str, word: bytes) -> Any:
    text = word.decode("utf-8", "replace").lower()
    if name == "kind":
        if text not in KINDS:
            raise Failure(f"ERR KIND is {text[:40]!r}, must be one of {', '.join(KINDS)}")
        return text
    if name in ("window", "hasher"):
        return text
    number = integer(word)
    if number is None:
        raise Failure(f"ERR {name.replace('_', ' ')} is {text[:40]!r}, must be a whole number")
    return number
