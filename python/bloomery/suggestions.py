"""A wrong name gets the right one: what other libraries call the things that are here.

`NAMES`, `KEYWORDS`, `ELSEWHERE` and `CLASSES` are the whole table. No filter has a `__getattr__`
for it: before Python 3.12 that alone doubles the time of `filter.add(key)`.
"""

from __future__ import annotations

import abc
import functools
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

__all__ = ["OtherNames", "constructor", "known_keywords", "missing_name"]

_REMOVING = "a CountingBloomFilter or a CuckooFilter to take keys out again"
# What to use in place of an attribute that a filter does not have: one that it has, or a sentence.
NAMES = {
    **dict.fromkeys(("check", "might_contain", "mightContain"), "contains"),
    **dict.fromkeys(("exists", "lookup", "query"), "contains"),
    **dict.fromkeys(("insert", "put"), "add"),
    **dict.fromkeys(("extend", "add_all", "insert_many"), "update"),
    **dict.fromkeys(("put_all", "putAll"), "update, or `filter |= other`"),
    **dict.fromkeys(("count", "approx_items", "num_items"), "estimated_count"),
    "approximateElementCount": "estimated_count",
    "fp_rate": "error_rate",
    **dict.fromkeys(("estimated_fp_rate", "expected_fpp", "expectedFpp"), "estimated_error_rate"),
    **dict.fromkeys(("remove", "discard", "delete"), _REMOVING),
    "issubset": "`filter <= other`, of a BloomFilter",
    "issuperset": "`other <= filter`, of a BloomFilter",
    **dict.fromkeys(("tofile", "sync"), "save"),
    "to_base64": "to_bytes",
    "fromfile": "load",
    "size_in_bits": "num_bits",
    "hash_count": "num_hashes",
}
# What to use in place of a keyword; which of several is the first that the function has.
KEYWORDS = {
    **dict.fromkeys(("fp_rate", "fpp", "fpr", "p", "false_positive_rate"), ("error_rate",)),
    **dict.fromkeys(
        ("expected_items", "expected_elements", "expected_insertions", "expectedInsertions"),
        ("capacity", "keys_per_filter"),
    ),
    **dict.fromkeys(
        ("capacity", "initial_capacity", "max_elements", "n", "size"),
        ("capacity", "keys_per_filter"),
    ),
    **dict.fromkeys(("m", "m_bits"), ("num_bits",)),
    **dict.fromkeys(("k", "k_hashes", "hash_count"), ("num_hashes",)),
    "mode": ("growth",),
    "expansion": ("growth",),
}
# What to use in place of a keyword where no keyword will do.
ELSEWHERE = {
    "mode": "a file is opened by load(path, mmap=True, writable=True)",
    "filename": "a file is written by save(path), and opened by load(path, mmap=True)",
    **dict.fromkeys(
        ("m", "m_bits", "num_bits", "k", "k_hashes", "hash_count", "num_hashes"),
        "bits and hashes are given to BloomFilter.with_shape(num_bits, num_hashes)",
    ),
}
# What to import in place of a name that is not there.
CLASSES = {
    "Bloom": "BloomFilter",
    "CountingFilter": "CountingBloomFilter",
    "Cuckoo": "CuckooFilter",
    "Guard": "Guard of bloomery.guard",
    "RedisBloomFilter": "RedisFilter of bloomery.integrations.redis",
    "RedisFilter": "RedisFilter of bloomery.integrations.redis",
    "ScalableFilter": "ScalableBloomFilter",
    "bloomfilter": "BloomFilter",
    "compute_optimal_params": "sizing.plan(capacity, error_rate)",
}
F = TypeVar("F", bound=Callable[..., Any])


class _OwnNames(abc.ABCMeta):
    """The type of filter classes: `dir` and `help` do not list the names of other libraries.

    An ABCMeta, so that a filter can be a base beside an abstract class.
    """

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__()} - cls.other_names())

    def other_names(cls) -> set[str]:
        return {name for name in NAMES if getattr(cls, name) is vars(OtherNames)[name]}


class OtherNames(metaclass=_OwnNames):
    """Names that other libraries have for what a filter does: each is an AttributeError that names
    ours. The last base of a class, so that it hides nothing that is there."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        """List what is there."""
        return sorted({*super().__dir__()} - type(self).other_names())


def _other_name(name: str, right: str) -> property:
    def refuse(self: object) -> NoReturn:
        told = f": use {right}" if " " in right or hasattr(type(self), right) else ""
        raise AttributeError(f"a {type(self).__name__} has no {name}{told}")

    return property(refuse, doc=f"Not here: use {right}.")


for _name, _right in NAMES.items():
    setattr(OtherNames, _name, _other_name(_name, _right))


def known_keywords(function: F) -> F:
    """Make a function that gets an unknown keyword name the one that was meant (a TypeError)."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(function)
    def checked(first: Any, *args: Any, **keywords: Any) -> Any:
        for name in keywords:
            if name not in known:
                cls = first if isinstance(first, type) else type(first)
                called = "" if function.__name__ == "__new__" else f".{function.__name__}"
                raise TypeError(f"{cls.__name__}{called}() has no {name}: {_meant(name, known)}")
        return function(first, *args, **keywords)

    return checked  # type: ignore[return-value]


def _meant(name: str, known: tuple[str, ...]) -> str:
    usable = [one for one in known if one not in ("cls", "self")]
    right = [one for one in KEYWORDS.get(name, ()) if one in usable]
    if not right and name in ELSEWHERE:
        return ELSEWHERE[name]
    right = right or _near(name, usable)
    return f"use {right[0]}" if right else f"it takes {', '.join(usable)}"


def _near(name: str, names: Iterable[str]) -> list[str]:
    from difflib import get_close_matches  # not before somebody errs

    return get_close_matches(name, names, 1, 0.7)


def missing_name(name: str) -> NoReturn:
    """Be the `__getattr__` of `bloomery`: say which name was meant.

    An ImportError, since `from bloomery import Bloom` would replace the text of an AttributeError
    by its own; but of names of classes alone, for a module may still be there to be imported.
    """
    bloomery = sys.modules["bloomery"]
    right = CLASSES.get(name)
    if right is None and name[:1].isupper():
        right = "".join(_near(name, bloomery.__all__))
    if right:
        raise ImportError(f"bloomery has no {name}: use {right}", name="bloomery")
    raise AttributeError(f"module 'bloomery' has no attribute {name!r}", name=name, obj=bloomery)


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
