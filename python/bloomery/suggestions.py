"""A wrong name gets the right one: what other libraries call the things that are here.

`NAMES`, `KEYWORDS`, `ELSEWHERE` and `CLASSES` are the whole table. No filter has a `__getattr__`
for it: before Python 3.12 that alone doubles the time of `filter.add(key)`.
"""

from __future__ import annotations

import abc
import functools
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

__all__ = ["OtherNames", "all_names", "constructor", "known_keywords", "missing_name"]

# What to use in place of an attribute that a filter does not have: one that it has, or a sentence.
NAMES = {
    **dict.fromkeys(("check", "might_contain", "mightContain", "may_contain"), "contains"),
    **dict.fromkeys(("exists", "lookup", "query", "has", "isin", "test"), "contains"),
    **dict.fromkeys(("insert", "put", "append"), "add"),
    **dict.fromkeys(("extend", "add_all", "bulk_add", "insert_many"), "update"),
    **dict.fromkeys(("put_all", "putAll", "merge"), "update, or `filter |= other`"),
    **dict.fromkeys(("count", "approx_items", "num_items", "num_elements"), "estimated_count"),
    "approximateElementCount": "estimated_count",
    "n": "capacity",
    "fp_rate": "error_rate",
    **dict.fromkeys(("estimated_fp_rate", "expected_fpp", "expectedFpp"), "estimated_error_rate"),
    **dict.fromkeys(
        ("current_fp_rate", "false_positive_probability", "false_positive_rate"),
        "estimated_error_rate",
    ),
    "is_full": "saturated",
    "reset": "clear",
    **dict.fromkeys(("remove", "discard", "delete"), "remove"),
    "issubset": "`filter <= other`, of a BloomFilter",
    "issuperset": "`other <= filter`, of a BloomFilter",
    **dict.fromkeys(("tofile", "sync", "dump"), "save"),
    **dict.fromkeys(("to_base64", "tobytes", "dumps", "save_bytes", "serialize"), "to_bytes"),
    **dict.fromkeys(("from_base64", "loads", "load_bytes", "deserialize"), "from_bytes"),
    "frombytes": "from_bytes",
    **dict.fromkeys(("fromfile", "open"), "load"),
    "from_keys": "build",
    **dict.fromkeys(("m", "size_in_bits", "bit_size"), "num_bits"),
    "size": "num_bits, or nbytes",
    **dict.fromkeys(("k", "hash_count"), "num_hashes"),
    "positions": "positions",
}
# And where a filter does not have that either.
_OTHERWISE = {
    "remove": "a CountingBloomFilter or a CuckooFilter to take keys out again",
    "build": "update(keys) on a new filter",
    "positions": "a BloomFilter or a CountingBloomFilter: those have bits to show",
}
# What to use in place of a keyword; which of several is the first that the function has.
KEYWORDS = {
    **dict.fromkeys(
        ("fp_rate", "fpp", "fpr", "p", "false_positive_rate", "error", "fp"), ("error_rate",)
    ),
    **dict.fromkeys(("hash_func", "hash_function"), ("hasher",)),
    **dict.fromkeys(
        ("expected_items", "expected_elements", "expected_insertions", "expectedInsertions"),
        ("capacity", "keys_per_filter"),
    ),
    **dict.fromkeys(
        ("capacity", "initial_capacity", "max_elements", "n", "size", "items"),
        ("capacity", "keys_per_filter"),
    ),
    **dict.fromkeys(("m", "m_bits"), ("num_bits",)),
    **dict.fromkeys(("k", "k_hashes", "hash_count"), ("num_hashes",)),
    "mode": ("growth",),
    "expansion": ("growth",),
    **dict.fromkeys(("ttl", "expiry"), ("window",)),
}
# What to use in place of a keyword where no keyword will do.
ELSEWHERE = {
    "mode": "a file is opened by load(path, mmap=True, writable=True)",
    "filename": "a file is written by save(path), and opened by load(path, mmap=True)",
    **dict.fromkeys(
        ("m", "m_bits", "num_bits", "k", "k_hashes", "hash_count", "num_hashes", "hashes"),
        "bits and hashes are given to BloomFilter.with_shape(num_bits, num_hashes)",
    ),
}
# What to import in place of a name that is not there.
_HOMES = {
    "apps": (
        *("AdmissionCache", "AsgiCacheMiddleware", "AsyncAdmissionCache", "Deduplicator"),
        *("DiskSet", "EdgeSummaries", "SeenStore", "WsgiCacheMiddleware"),
    ),
    "guard": ("AsyncGuard", "Guard"),
    "integrations.redis": ("RedisFilter",),
    "segments": ("SegmentIndex", "SegmentStore"),
    "signatures": ("SignatureIndex",),
}
CLASSES = {
    **{name: f"{name} of bloomery.{home}" for home, names in _HOMES.items() for name in names},
    "Bloom": "BloomFilter",
    "CountingFilter": "CountingBloomFilter",
    "Cuckoo": "CuckooFilter",
    "RedisBloomFilter": "RedisFilter of bloomery.integrations.redis",
    "ScalableFilter": "ScalableBloomFilter",
    "bloomfilter": "BloomFilter",
    "compute_optimal_params": "sizing.plan(capacity, error_rate)",
}
# Names of `bloomery` whose module is imported when they are asked for: 4 MB that few need.
LATER = {"AsyncClient": "bloomery.client", "Client": "bloomery.client"}
F = TypeVar("F", bound=Callable[..., Any])


class _OwnNames(abc.ABCMeta):
    """The type of filter classes: `dir` and `help` do not list the names of other libraries.

    An ABCMeta, so that a filter can be a base beside an abstract class.
    """

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__()} - cls.other_names())

    def other_names(cls) -> set[str]:
        own = {name for base in cls.__mro__ if base is not OtherNames for name in vars(base)}
        return {*NAMES} - own


class OtherNames(metaclass=_OwnNames):
    """Names that other libraries have for what a filter does: each is an AttributeError that names
    ours. The last base of a class, so that it hides nothing that is there."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        """List what is there."""
        return sorted({*super().__dir__()} - type(self).other_names())

    if not TYPE_CHECKING:

        def __len__(self):
            """Refuse: how many keys there are is only estimated."""
            raise TypeError(
                f"a {type(self).__name__} has no len(): estimated_count says about how many keys "
                "were added, capacity how many it is made for"
            )

    def __bool__(self) -> bool:
        """True, of an empty filter too."""
        return True


class _OtherName:
    """An attribute that is an error, of the class as of an instance: `BloomFilter.fromfile`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: _OwnNames) -> NoReturn:
        right = NAMES[self.name]
        if right.isidentifier() and right not in dir(owner):
            right = _OTHERWISE.get(right, "")
        hint = f": use {right}" if right else ""
        who = owner.__name__ if instance is None else f"a {owner.__name__}"
        raise AttributeError(f"{who} has no {self.name}{hint}")


for _name in NAMES:
    setattr(OtherNames, _name, _OtherName(_name))


def known_keywords(function: F) -> F:
    """Make a function that gets an unknown keyword name the one that was meant (a TypeError)."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        for name in keywords:
            if name not in known:
                who = _called(function, *args[:1])
                raise TypeError(f"{who}() has no {name}: {_meant(name, known)}")
        return function(*args, **keywords)

    return checked  # type: ignore[return-value]


def _called(function: Callable[..., Any], *first: Any) -> str:
    """What a person called: `plan`, `BloomFilter`, `BloomFilter.load`."""
    if "." not in function.__qualname__ or not first:
        return function.__qualname__
    cls = first[0] if isinstance(first[0], type) else type(first[0])
    own = function.__name__
    return cls.__name__ if own == "__new__" else f"{cls.__name__}.{own}"


def _meant(name: str, known: tuple[str, ...]) -> str:
    usable = [keyword for keyword in known if keyword not in ("cls", "self")]
    right = [keyword for keyword in KEYWORDS.get(name, ()) if keyword in usable]
    if not right and name in ELSEWHERE:
        return ELSEWHERE[name]
    right = right or _near(name, usable)
    return f"use {right[0]}" if right else f"it takes {', '.join(usable)}"


def _near(name: str, names: Iterable[str]) -> list[str]:
    from difflib import get_close_matches  # not before somebody errs

    return get_close_matches(name, names, 1, 0.7)


def missing_name(name: str) -> object:
    """Be the `__getattr__` of `bloomery`: import what is not imported before it is asked for, and
    say of a wrong name which was meant.

    An ImportError, since `from bloomery import Bloom` would replace the text of an AttributeError
    by its own; but of names of classes alone, for a module may still be there to be imported.
    """
    bloomery = sys.modules["bloomery"]
    if name == "client":  # a module; when it is imported, it is an attribute
        return import_module("bloomery.client")
    if name in LATER:
        setattr(bloomery, name, value := getattr(import_module(LATER[name]), name))
        return value
    right = CLASSES.get(name)
    if right is None and isinstance(getattr(bloomery.errors, name, None), type):
        right = f"{name} of bloomery.errors"
    if right is None and name[:1].isupper():
        right = "".join(_near(name, bloomery.__all__))
    if right:
        raise ImportError(f"bloomery has no {name}: use {right}", name="bloomery")
    raise AttributeError(f"module 'bloomery' has no attribute {name!r}", name=name, obj=bloomery)


def all_names() -> list[str]:
    """Be the `__dir__` of `bloomery`: with the names that are imported later."""
    return sorted({*vars(sys.modules["bloomery"]), *LATER})


if TYPE_CHECKING:  # the same to a type checker, and a classmethod that instances do not have
    from builtins import classmethod as constructor
else:

    class constructor(classmethod):  # noqa: N801
        """A class method that makes a filter; an instance, which would not change, has no such."""

        def __get__(self, instance, owner=None):
            if instance is not None:
                name = self.__func__.__name__
                cls = type(instance).__name__
                raise AttributeError(
                    f"{name} makes a new {cls} and leaves this one as it is: "
                    f"filter = {cls}.{name}(…)"
                )
            return super().__get__(instance, owner)
