"""A wrong name gets the right one."""

from __future__ import annotations

import abc
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bloomery
from bloomery import (
    BloomFilter,
    CountingBloomFilter,
    FilterBank,
    RotatingBloomFilter,
    ScalableBloomFilter,
    StaticFilter,
    errors,
    sizing,
)
from bloomery.client import AsyncRemoteFilter, Client
from bloomery.filters import COMMON_KINDS, RedisCuckooFilter
from bloomery.integrations.redis import AsyncRedisFilter, RedisFilter
from bloomery.suggestions import CLASSES, KEYWORDS, NAMES
from unit.kinds import made

WRONG_NAMES = {
    "check": "contains",
    "might_contain": "contains",
    "mightContain": "contains",
    "exists": "contains",
    "insert": "add",
    "put": "add",
    "putAll": "update",
    "current_fp_rate": "estimated_error_rate",
    "fp_rate": "error_rate",
    "expectedFpp": "estimated_error_rate",
    "tofile": "save",
    "to_base64": "to_bytes",
    "issubset": "filter <= other",
}


@pytest.mark.parametrize("kind", COMMON_KINDS)
@pytest.mark.parametrize("name", WRONG_NAMES)
def test_attributes(kind: str, name: str) -> None:
    """An attribute of another library is an AttributeError that names ours, in every kind."""
    filter = made(kind)
    with pytest.raises(AttributeError, match=f"has no {name}: use .*{WRONG_NAMES[name]}"):
        getattr(filter, name)
    assert not hasattr(filter, name)


def test_a_filter_that_cannot_remove_says_which_can() -> None:
    """`discard` names the filters that have it; in those it is as it was, and `delete` names it."""
    for kind in ("counting", "cuckoo", "deletable"):
        with pytest.raises(AttributeError, match=r"Filter has no delete: use remove$"):
            made(kind).delete  # noqa: B018
    with pytest.raises(AttributeError, match="CountingBloomFilter or a CuckooFilter"):
        made("bloom").discard  # noqa: B018
    assert made("counting").discard("nobody") is False
    assert RedisCuckooFilter().discard(b"nobody") is False


@pytest.mark.parametrize("kind", COMMON_KINDS)
def test_len(kind: str) -> None:
    """`len` says what there is in its place; an empty filter is true all the same."""
    filter: Any = made(kind)
    with pytest.raises(TypeError, match="estimated_count"):
        len(filter)
    assert filter
    assert BloomFilter(10)


def test_len_of_filters_elsewhere() -> None:
    """The same of a filter of a server or in Redis; a bank has users, which it counts."""
    for remote in (Client("http://127.0.0.1:1")["seen"], object.__new__(RedisFilter)):
        with pytest.raises(TypeError, match="estimated_count"):
            len(remote)  # type: ignore[arg-type]
        assert remote
    bank = FilterBank()
    assert (len(bank), bool(bank)) == (0, False)
    bank.add("ann", "alice")
    assert (len(bank), bool(bank)) == (1, True)


def test_what_a_client_refuses_by_itself() -> None:
    """Sizes that were swapped, and a name that is none, are seen before a server is asked."""
    client = Client("http://127.0.0.1:1")
    with pytest.raises(errors.InvalidParameter, match=r"swapped\?"):
        client.create("seen", 0.01, 1000)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidParameter, match="name is a str or bytes, not 5"):
        client[5]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "cls", [*COMMON_KINDS.values(), FilterBank, AsyncRemoteFilter, RedisFilter]
)
def test_no_suggestion_of_what_is_not_there(cls: Any) -> None:
    """A suggestion is a name that the class has, or a sentence."""
    for name in cls.other_names():
        with pytest.raises(AttributeError, match=f"{cls.__name__} has no {name}") as caught:
            getattr(cls, name)
        told = re.findall(r": use (\w+)$", str(caught.value))
        assert all(hasattr(cls, right) for right in told)


@pytest.mark.parametrize(
    ("name", "right"), [("fromfile", "load"), ("open", "load"), ("load_bytes", "from_bytes")]
)
def test_attributes_of_classes(name: str, right: str) -> None:
    """What others make filters with is an error of the class as well, that names ours."""
    with pytest.raises(AttributeError, match=f"^BloomFilter has no {name}: use {right}$"):
        getattr(BloomFilter, name)
    with pytest.raises(AttributeError, match=r"^StaticFilter has no from_keys: use build$"):
        StaticFilter.from_keys  # type: ignore[attr-defined]  # noqa: B018


def test_bits_of_a_filter_that_has_none() -> None:
    """`positions` of a filter of fingerprints says which filters have bits to show."""
    with pytest.raises(AttributeError, match="use a BloomFilter or a CountingBloomFilter"):
        made("cuckoo").positions  # noqa: B018


@pytest.mark.parametrize("cls", [*COMMON_KINDS.values(), FilterBank, RedisFilter])
def test_only_own_names_are_listed(cls: type) -> None:
    """Names of other libraries are in no listing, so that nobody is offered them."""
    hidden = {name for name in NAMES if not hasattr(cls, name)}
    assert {"check", "insert"} <= hidden
    shown = {*dir(cls), *(name for name, _ in inspect.getmembers(cls))}
    assert not shown & hidden
    assert "contains" in shown


def test_listing_of_an_instance() -> None:
    """The same of `dir(filter)`, which completion goes by."""
    names = dir(BloomFilter(10))
    assert "contains" in names
    assert "check" not in names
    assert "count" not in names
    assert "count" in dir(CountingBloomFilter(10))


def test_a_filter_beside_an_abstract_class() -> None:
    """A class of a user's own may be a filter and implement an abstract class."""

    class Checks(abc.ABC):
        @abc.abstractmethod
        def check(self, key: str) -> bool: ...

    class Own(BloomFilter, Checks):
        def check(self, key: str) -> bool:
            return key in self

    own = Own(10)
    own.add("alice")
    assert own.check("alice")


WRONG_KEYWORDS = [
    ("fp_rate", "error_rate"),
    ("p", "error_rate"),
    ("eror_rate", "error_rate"),
    ("expected_items", "capacity"),
    ("expected_elements", "capacity"),
    ("n", "capacity"),
    ("k", r"with_shape\(num_bits, num_hashes\)"),
    ("num_bits", r"with_shape\(num_bits, num_hashes\)"),
    ("mode", "load"),
    ("hashes", r"with_shape\(num_bits, num_hashes\)"),
    ("hash_func", "hasher"),
    ("error", "error_rate"),
    ("zzz", "it takes capacity, error_rate, layout, hasher, seed"),
]


@pytest.mark.parametrize(("name", "right"), WRONG_KEYWORDS)
def test_keywords(name: str, right: str) -> None:
    """A keyword of another library, or a slip, is a TypeError that names ours."""
    wanted = rf"^BloomFilter\(\) has no {name}: .*{right}"
    with pytest.raises(TypeError, match=wanted):
        BloomFilter(**{name: 5})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "name", "right"),
    [
        (ScalableBloomFilter, "mode", "growth"),
        (FilterBank, "capacity", "keys_per_filter"),
        (BloomFilter.from_keys, "fp_rate", "error_rate"),
        (BloomFilter.with_shape, "m", "num_bits"),
        (StaticFilter.build, "fp_rate", "error_rate"),
        (RotatingBloomFilter, "ttl", "window"),
        (sizing.plan, "fp_rate", "error_rate"),
        (sizing.solve, "n", "capacity"),
        (RedisFilter.create, "fp_rate", "error_rate"),
        (AsyncRedisFilter.create, "n", "capacity"),
    ],
)
def test_keywords_of_others(make: Any, name: str, right: str) -> None:
    """Whatever makes a filter says which of its own keywords was meant."""
    with pytest.raises(TypeError, match=f"has no {name}: use {right}"):
        make(**{name: 1})


def test_keywords_of_load() -> None:
    """A file's mode, as pybloomfiltermmap3 has it, is told what to write."""
    with pytest.raises(TypeError, match=r"^BloomFilter\.load\(\) has no mode: .*writable=True"):
        BloomFilter.load("seen.bloom", mode="rw")  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", [kind for kind in COMMON_KINDS if kind != "static"])
def test_swapped(kind: str) -> None:
    """An error rate in the place of the capacity is seen, and said."""
    with pytest.raises(errors.InvalidParameter, match=r"capacity is '1%' .*swapped\?"):
        COMMON_KINDS[kind]("1%", 1000)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidParameter, match=r"swapped\?.*capacity=1000, error_rate=0.01"):
        COMMON_KINDS[kind](0.01, 1000)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidParameter, match=r"swapped\?.*keys_per_filter=1000"):
        FilterBank(1000, 0.01)  # type: ignore[arg-type]


def test_what_a_first_try_gives_for_sizes() -> None:
    """Keys in the place of the capacity, and percents as the rate, are told what to write."""
    with pytest.raises(errors.InvalidParameter, match=r"BloomFilter\.from_keys\(keys\)"):
        BloomFilter(["alice", "bob"])  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidParameter, match=r"not 5; 1% is 0\.01"):
        BloomFilter(1000, 5)


@pytest.mark.parametrize("text", ["1%", " 1 %", "0.01", "1e-2", "1e0%"])
def test_error_rates_as_people_write_them(text: str) -> None:
    """An error rate may be text, as on the command line, in every kind."""
    assert BloomFilter(10, text).error_rate == 0.01
    assert FilterBank(text).error_rate == 0.01
    assert StaticFilter.build([1], text).error_rate == 0.01
    assert ScalableBloomFilter(capacity=500, error_rate=text) == ScalableBloomFilter(500, 0.01)


def test_every_name_of_the_page_is_known() -> None:
    """docs/migrate.md promises that its names are refused with ours: so is each in its table."""
    page = Path(__file__).parents[2] / "docs/migrate.md"
    rows = [row.split("|")[1] for row in page.read_text().splitlines() if row.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`(\w+)(?:\(\))?`", row)}
    known = {*NAMES, *KEYWORDS, *dir(BloomFilter)}
    assert told > {"mightContain", "sync", "fpp"}
    assert told <= known


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("Guard", "Guard of bloomery.guard"),
        ("SegmentStore", "SegmentStore of bloomery.segments"),
        ("CorruptData", "CorruptData of bloomery.errors"),
        ("compute_optimal_params", "sizing.plan"),
    ],
)
def test_imports_from_elsewhere(name: str, right: str) -> None:
    """What is not a filter, and is in another module, is named with it."""
    with pytest.raises(ImportError, match=f"bloomery has no {name}: use {right}"):
        exec(f"from bloomery import {name}")


def test_what_is_elsewhere_is_there() -> None:
    """Every class that is named with a module can be imported from it."""
    named = [right.split(" of ") for right in CLASSES.values() if " of " in right]
    assert ["SeenStore", "bloomery.apps"] in named
    for name, module in named:
        assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", ["Bloom", "Bloomfilter", "bloomfilter", "RedisFilter"])
def test_imports(name: str) -> None:
    """A class of another name is an ImportError that names ours; what is near none is as ever."""
    with pytest.raises(ImportError, match=f"bloomery has no {name}: use .*Filter"):
        exec(f"from bloomery import {name}")
    assert not hasattr(bloomery, "nothing")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from bloomery import nothing")
    exec("from bloomery import building, guard, names")  # modules of the package


@pytest.mark.parametrize("name", ["load", "from_bytes", "from_keys", "with_shape"])
def test_an_instance_makes_no_other(name: str, tmp_path: Path) -> None:
    """`filter.load(path)` is an error: it would make another filter, and leave this one."""
    filter: Any = BloomFilter(10)
    with pytest.raises(AttributeError, match=rf"{name} makes a new .*BloomFilter\.{name}\("):
        getattr(filter, name)
    filter.save(tmp_path / "saved.bloom")
    assert BloomFilter.load(tmp_path / "saved.bloom") == filter.copy()
    bank = FilterBank()
    assert bank.copy() == bank
    with pytest.raises(AttributeError, match=r"FilterBank\.open"):
        bank.open  # noqa: B018


@pytest.mark.parametrize("cls", [*COMMON_KINDS.values(), FilterBank])
def test_no_native_name_in_messages(cls: type) -> None:
    """What is called wrongly names a class that users know, and the method as they called it."""
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        if name.startswith("_") or not callable(method):
            continue
        # A bank refuses an intersection as it does a union.
        assert re.fullmatch(rf"\w*Filter\w*\.({name}|union)", method.__qualname__)
    with pytest.raises(TypeError, match=r"^BloomFilter\.update\(\) missing"):
        BloomFilter(10).update()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Filter\.remove\(\) takes exactly one"):
        CountingBloomFilter(10).remove()  # type: ignore[call-arg]


def test_import_waits_for_no_error() -> None:
    """`import bloomery` brings no module that only an error needs."""
    program = "import json, sys, bloomery; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert "difflib" not in json.loads(done.stdout)


def test_remote_filters_suggest_too() -> None:
    """A filter of a server names what it has: no request is made for that."""
    remote = Client("http://127.0.0.1:1")["seen"]
    with pytest.raises(AttributeError, match="a RemoteFilter has no insert: use add"):
        remote.insert  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", ["bloomery.client.Client", "bloomery.Client"])
def test_the_client_without_an_import_of_its_own(name: str) -> None:
    """It is there after `import bloomery`, by its module too, which is not imported before."""
    program = (
        "import sys, bloomery; assert 'bloomery.client' not in sys.modules; "
        f"print({name} is sys.modules['bloomery.client'].Client)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"True"
