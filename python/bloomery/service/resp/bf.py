"""BF.*: RedisBloom's commands, and ours beside them. Each handler's docstring is what it does; its
grammar stands in the table. The usual cases of ADD, MADD, EXISTS, MEXISTS and DEL never come here:
native code answers them (`_native.Session`)."""

from __future__ import annotations

from typing import Any

from bloomery import errors
from bloomery.service.resp import failures
from bloomery.service.resp.client import Client
from bloomery.service.resp.replies import OK, Failure
from bloomery.service.resp.table import command, wrong_arity
from bloomery.service.resp.words import decimal, integer, option
from bloomery.storage import files
from bloomery.storage.state import Entry

__all__ = ["answers", "filter_at"]

MOST_CAPACITY = 1 << 30
MOST_EXPANSION = 32768
MOST_RATE = 0.25
KINDS = ("bloom", "scalable", "counting", "deletable", "cuckoo", "rotating", "bank")
# What only some kinds have, by the word that sets it.
_OF_KINDS = {
    "WINDOW": "window",
    "GENERATIONS": "generations",
    "COUNTERBITS": "counter_bits",
    "REGIONS": "regions",
    "HASHER": "hasher",
}
_NAME = (1, 1, 1)


def filter_at(client: Client, name: bytes, door: str) -> Entry | None:
    """Return the filter of a name; None if there is none. WRONGTYPE if it has another door."""
    entry = client.server.engine.find(name)
    if entry is not None and entry.settings.get("door", "bf") != door:
        raise failures.WRONG_TYPE
    return entry


def answers(outcome: tuple[bytes, tuple[str, str] | None], door: str) -> list[Any]:
    """Return the answers to an array's keys; the one that was refused is the last."""
    done, refused = outcome
    replies: list[Any] = [bool(answer) for answer in done]
    return replies if refused is None else [*replies, failures.refusal(door, refused)]


def _make(
    client: Client, name: bytes, rate: float, capacity: int, expansion: int, **more: Any
) -> None:
    """Make a filter as BF commands do: one that grows, unless its expansion is 0."""
    settings = client.server.settings
    rate = min(rate, MOST_RATE)
    chosen: dict[str, Any] = {"capacity": capacity, "error_rate": rate, "expansion": expansion}
    kind = more.pop("kind", None)
    if kind is None:
        if settings.bf_layout == "redisbloom":
            kind = "redisbloom"
        else:
            kind = "scalable" if expansion else "bloom"
    if kind == "redisbloom" and not expansion:
        chosen["nonscaling"] = True
    client.server.commands.create(name, kind, **chosen, **more)


def _make_default(client: Client, name: bytes) -> None:
    settings = client.server.settings
    rate, size = settings.bf_error_rate, settings.bf_initial_size
    _make(client, name, rate, size, settings.bf_expansion_factor)


@command(
    "BF.RESERVE",
    "key error_rate capacity [EXPANSION n] [NONSCALING] [KIND kind [WINDOW time] [GENERATIONS n] "
    "[COUNTERBITS 4|8] [REGIONS n]] [HASHER name]",
    least=3,
    most=None,
    write=True,
    keys=_NAME,
)
def reserve(client: Client, words: list[bytes]) -> str:
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
    ours = b"KIND" in [word.upper() for word in rest]
    most = client.server.settings.max_capacity if ours else MOST_CAPACITY
    if not 1 <= capacity <= most:
        raise Failure(f"ERR capacity must be in the range [1, {most}]")
    expansion, more = _options(client, rest)
    if filter_at(client, name, "bf") is not None:
        raise failures.EXISTS
    _make(client, name, rate, capacity, expansion, **more)
    return OK


def _options(client: Client, rest: list[bytes]) -> tuple[int, dict[str, Any]]:
    """Read what follows the capacity. As RedisBloom does, it ignores words that it does not know,
    where there are few of them."""
    expansion: int | None = None
    nonscaling = False
    more: dict[str, Any] = {}
    known = {*_OF_KINDS, "KIND"}
    if len(rest) > 3 and not known & {option(word) for word in rest}:
        raise wrong_arity("BF.RESERVE")
    at = 0
    while at < len(rest):
        word, value = option(rest[at]), rest[at + 1] if at + 1 < len(rest) else None
        at += 1
        if word == "NONSCALING":
            nonscaling = True
        elif word == "EXPANSION":
            if value is None:
                raise Failure("ERR no expansion")
            expansion = integer(value)
            if expansion is None:
                raise Failure("ERR bad expansion")
            at += 1
        elif word in known:
            if value is None:
                raise Failure(f"ERR {word} needs a value")
            name = _OF_KINDS.get(word, "kind")
            more[name] = _value(name, value)
            at += 1
    if nonscaling and expansion is not None and expansion >= 1:
        raise Failure("Nonscaling filters cannot expand")
    if expansion is None:
        expansion = client.server.settings.bf_expansion_factor
    if not 0 <= expansion <= MOST_EXPANSION:
        raise Failure(f"ERR expansion must be in the range [0, {MOST_EXPANSION}]")
    return 0 if nonscaling else expansion, more


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


@command("BF.ADD", "key item", least=2, write=True, keys=_NAME)
def add(client: Client, words: list[bytes]) -> Any:
    """Add a key: 1 if it is definitely new, 0 if it may have been there."""
    (answer,) = _madd(client, words)
    if isinstance(answer, Failure):
        raise answer
    return answer


@command("BF.MADD", "key item [item ...]", least=2, most=None, write=True, keys=_NAME)
def madd(client: Client, words: list[bytes]) -> list[Any]:
    """Add keys: for each, 1 if it is definitely new, 0 if it may have been there."""
    return _madd(client, words)


def _madd(client: Client, words: list[bytes]) -> list[Any]:
    name, *keys = words
    if filter_at(client, name, "bf") is None:
        _make_default(client, name)
    return answers(client.server.commands.add(name, keys), "bf")


@command(
    "BF.INSERT",
    "key [CAPACITY n] [ERROR rate] [EXPANSION n] [NOCREATE] [NONSCALING] ITEMS item [item ...]",
    least=3,
    most=None,
    write=True,
    keys=_NAME,
)
def insert(client: Client, words: list[bytes]) -> list[Any]:
    """Add keys, and make the filter as told if there is none."""
    settings = client.server.settings
    name, rate, capacity = words[0], settings.bf_error_rate, settings.bf_initial_size
    expansion, nonscaling, create = settings.bf_expansion_factor, False, True
    at = 1
    while True:
        if at >= len(words):
            raise wrong_arity("BF.INSERT")
        word, value = option(words[at]), words[at + 1] if at + 1 < len(words) else b""
        at += 1
        # As RedisBloom does, an option is known by its first letters.
        if word.startswith("I"):
            break
        if word.startswith("ER"):
            found = decimal(value)
            if found is None or not 0 < found < 1:
                raise Failure("Bad error rate")
            rate, at = found, at + 1
        elif word.startswith("E"):
            number = integer(value)
            if number is None or not 0 <= number <= MOST_EXPANSION:
                raise Failure("Bad expansion")
            expansion, at = number, at + 1
        elif word.startswith("C"):
            number = integer(value)
            if number is None or not 1 <= number <= MOST_CAPACITY:
                raise Failure("Bad capacity")
            capacity, at = number, at + 1
        elif word.startswith("N"):
            if word[2:3] == "C":
                create = False
            else:
                nonscaling = True
        else:
            raise Failure("Unknown argument received")
    keys = words[at:]
    if not keys:
        raise wrong_arity("BF.INSERT")
    if filter_at(client, name, "bf") is None:
        if not create:
            raise failures.NOT_FOUND
        _make(client, name, rate, capacity, 0 if nonscaling else expansion)
    return answers(client.server.commands.add(name, keys), "bf")


@command("BF.EXISTS", "key item", least=2, keys=_NAME)
def exists(client: Client, words: list[bytes]) -> bool:
    """Tell whether a key may have been added: 0 is certain."""
    return _mexists(client, words)[0]


@command("BF.MEXISTS", "key item [item ...]", least=2, most=None, keys=_NAME)
def mexists(client: Client, words: list[bytes]) -> list[bool]:
    """Tell of each key whether it may have been added: 0 is certain."""
    return _mexists(client, words)


def _mexists(client: Client, words: list[bytes]) -> list[bool]:
    name, *keys = words
    try:
        if filter_at(client, name, "bf") is None:
            return [False] * len(keys)
    except Failure:
        return [False] * len(keys)  # what is no such filter holds none
    return [bool(answer) for answer in client.server.commands.contains(name, keys)]


@command("BF.DEL", "key item", least=2, write=True, keys=_NAME)
def delete(client: Client, words: list[bytes]) -> bool:
    """Take one copy of a key out, of a counting, deletable or cuckoo filter: 1 if there was one."""
    name, key = words
    if filter_at(client, name, "bf") is None:
        raise failures.NOT_FOUND
    done, refused = client.server.commands.remove(name, [key])
    if refused is not None:
        raise failures.refusal("bf", refused)
    return bool(done[0])


@command("BF.CARD", "key", least=1, keys=_NAME)
def card(client: Client, words: list[bytes]) -> int:
    """Tell how many distinct keys were added, as far as the filter could tell them apart."""
    entry = filter_at(client, words[0], "bf")
    return 0 if entry is None else entry.items


def _facts(entry: Entry) -> dict[str, Any]:
    """The five figures of BF.INFO."""
    settings = entry.settings
    if entry.filter is not None and entry.filter.kind == "redisbloom":
        chain = entry.filter
        capacity = sum(int(layer["capacity"]) for layer in chain.layers())
        size, number, expansion = chain.redis_size, chain.num_layers, chain.expansion
    else:
        made = settings.get("capacity", getattr(entry.filter, "capacity", 0))
        fixed = entry.filter is not None and entry.filter.kind == "bloom"
        capacity = made if fixed else max(made, entry.items)
        size = 0 if entry.filter is None else entry.filter.nbytes
        number = settings.get("generations", 1)
        expansion = None if fixed else settings.get("expansion", 2)
    return {
        "Capacity": capacity,
        "Size": size,
        "Number of filters": number,
        "Number of items inserted": entry.items,
        "Expansion rate": expansion,
    }


_FIELDS = {
    "CAPACITY": "Capacity",
    "SIZE": "Size",
    "FILTERS": "Number of filters",
    "ITEMS": "Number of items inserted",
    "EXPANSION": "Expansion rate",
}


@command("BF.INFO", "key [CAPACITY|SIZE|FILTERS|ITEMS|EXPANSION]", least=1, most=2, keys=_NAME)
def info(client: Client, words: list[bytes]) -> Any:
    """Tell what a filter was made for and what it holds."""
    entry = filter_at(client, words[0], "bf")
    if entry is None:
        raise failures.NOT_FOUND
    facts = _facts(entry)
    if len(words) == 1:
        return facts
    field = _FIELDS.get(option(words[1]))
    if field is None:
        raise Failure("Invalid information value")
    return {field: facts[field]} if client.protocol == 3 else [facts[field]]


def _layer(layer: dict[str, float]) -> str:
    """A layer in RedisBloom's words."""
    bits = int(layer["num_bits"])
    return (
        f"bytes:{bits // 8} bits:{bits} hashes:{int(layer['num_hashes'])} hashwidth:64 "
        f"capacity:{int(layer['capacity'])} size:{int(layer['keys'])} ratio:{layer['error_rate']:g}"
    )


@command("BF.DEBUG", "key", least=1, keys=_NAME)
def debug(client: Client, words: list[bytes]) -> list[bytes]:
    """Tell how a filter is built."""
    entry = filter_at(client, words[0], "bf")
    if entry is None:
        raise failures.NOT_FOUND
    lines = [f"size:{entry.items}"]
    if entry.filter is not None and entry.filter.kind == "redisbloom":
        lines += [_layer(layer) for layer in entry.filter.layers()]
    else:
        about = client.server.commands.info(words[0])
        lines += [f"{key}:{value}" for key, value in about.items() if key != "settings"]
    return [line.encode("utf-8", "replace") for line in lines]


@command("BF.SCANDUMP", "key iterator", least=2, keys=_NAME)
def scandump(client: Client, words: list[bytes]) -> list[Any]:
    """Return a filter in parts: the next iterator and bytes; from 0 until it is 0 again."""
    name, iterator = words[0], integer(words[1])
    entry = filter_at(client, name, "bf")
    if entry is None:
        raise failures.NOT_FOUND
    if iterator is None:
        raise Failure("Second argument must be numeric")
    if iterator < 0:
        return [0, b""]
    commands = client.server.commands
    if entry.filter is not None and entry.filter.kind == "redisbloom":
        return list(entry.filter.chunk(iterator))
    if iterator == 0:
        return [1, commands.export(name, -1)]
    data = commands.export(name, iterator - 1)
    return [iterator + len(data) if data else 0, data]


@command("BF.LOADCHUNK", "key iterator data", least=3, write=True, keys=_NAME)
def loadchunk(client: Client, words: list[bytes]) -> str:
    """Take a part of a filter as SCANDUMP gave it, with the iterator that came with it."""
    name, iterator, data = words[0], integer(words[1]), words[2]
    if iterator is None:
        raise Failure("ERR Second argument must be numeric")
    entry = filter_at(client, name, "bf")
    commands = client.server.commands
    if entry is None:
        if iterator != 1:
            raise failures.NOT_FOUND if iterator > 0 else Failure("ERR received bad data")
        own = files.is_head(data)
        try:
            commands.load(name, 1, data, form="bloomery" if own else "redisbloom")
        except errors.CorruptData as problem:
            raise Failure(
                f"ERR received bad data: {problem}" if own else "ERR received bad data"
            ) from None
        return OK
    if iterator <= 0 or iterator < len(data):
        raise Failure("ERR received bad data")
    if entry.filter is not None and entry.filter.kind == "redisbloom":
        try:
            commands.load(name, iterator, data)
        except errors.CorruptData as problem:
            raise Failure(str(problem)) from None  # in RedisBloom's words already
    elif entry.filter is None:
        commands.load(name, iterator - len(data) + files.HEADER_BYTES, data)
    else:
        raise Failure("ERR invalid offset - no link found")
    return OK


@command("BF.MERGE", "key source [source ...]", least=2, most=None, write=True, keys=(1, -1, 1))
def merge(client: Client, words: list[bytes]) -> str:
    """Add every key of the sources, which must be made alike, to a filter."""
    for name in words:
        if filter_at(client, name, "bf") is None:
            raise failures.NOT_FOUND
    client.server.commands.merge(words[0], *words[1:])
    return OK


@command("BF.CLEAR", "key", least=1, write=True, keys=_NAME)
def clear(client: Client, words: list[bytes]) -> str:
    """Forget every key of a filter."""
    if filter_at(client, words[0], "bf") is None:
        raise failures.NOT_FOUND
    client.server.commands.clear(words[0])
    return OK


@command("BF.ROTATE", "key", least=1, write=True, keys=_NAME)
def rotate(client: Client, words: list[bytes]) -> str:
    """Let a rotating filter begin a new generation now."""
    if filter_at(client, words[0], "bf") is None:
        raise failures.NOT_FOUND
    client.server.commands.rotate(words[0])
    return OK
