"""RedisBloom's filters: its published figures, dumps, files and what they refuse."""

from __future__ import annotations

import json
import mmap
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

import bloomery
from bloomery import CuckooFilter, _native, errors
from bloomery.filters import KINDS, RedisBloomFilter, RedisCuckooFilter
from bloomery.filters.internals import add_hashes, check_compatible, header, shares
from privates import hashes_of, open_filter
from properties.redisbloom_model import Bloom, Cuckoo, Link, murmur64a

KEYS = [b"key %d" % n for n in range(500)]
BOTH = [RedisBloomFilter, RedisCuckooFilter]
both = pytest.mark.parametrize("one", BOTH)


def filled(one: Any, *arguments: Any) -> Any:
    """A filter that holds KEYS, in several layers."""
    filter = one(*arguments)
    for key in KEYS:
        filter.add(key)
    return filter


def several(one: Any) -> Any:
    return filled(one, *((0.01, 50) if one is RedisBloomFilter else (100, 2, 20, 2)))


def test_the_hash_is_the_published_one() -> None:
    """The model's MurmurHash64A has SMHasher's verification value, and ours is the model's."""
    hashes = b"".join(murmur64a(bytes(range(n)), 256 - n).to_bytes(8, "little") for n in range(256))
    assert murmur64a(hashes, 0) & 0xFFFFFFFF == 0x1F0D3804
    for key in (b"", b"a", b"12345678", b"123456789", bytes(range(256))):
        assert hashes_of(RedisCuckooFilter, key) == murmur64a(key, 0).to_bytes(8, "little")
        pair = struct.pack("<QQ", *Bloom(0.01, 1, 2).hashes(key))
        assert hashes_of(RedisBloomFilter(), key) == pair


@pytest.mark.parametrize(
    ("rate", "capacity", "expected"),
    [  # as BF.DEBUG of running servers says them
        (0.01, 100, (1152, 8, 0.005)),
        (0.001, 50_000, (791_040, 11, 0.0005)),
        (0.00001, 10_000, (254_080, 18, 5e-06)),
    ],
)
def test_layers_are_as_large_as_theirs(
    rate: float, capacity: int, expected: tuple[int, int, float]
) -> None:
    """Bits, hashes and error rate of a first layer are those that RedisBloom has."""
    (layer,) = RedisBloomFilter(rate, capacity).layers()
    names = ("num_bits", "num_hashes", "error_rate", "capacity")
    assert [layer[name] for name in names] == [*expected, capacity]


def test_layers_grow_as_theirs() -> None:
    """The default filter's further layers are those of RedisBloom's own example."""
    layers = filled(RedisBloomFilter).layers()
    assert [layer["num_bits"] / 8 for layer in layers] == [144, 312, 696]
    assert [layer["num_hashes"] for layer in layers] == [8, 9, 10]
    assert [layer["error_rate"] for layer in layers] == [0.005, 0.0025, 0.00125]


@pytest.mark.parametrize(("bucket_size", "layers"), [(1, 12), (2, 11), (4, 10)])
def test_kick_outs_find_as_much_room_as_theirs(bucket_size: int, layers: int) -> None:
    """RedisBloom's own test of 10,000 keys needs as many layers; each kick-out counts for that."""
    filter = RedisCuckooFilter(1000, bucket_size, 50, 1)
    for number in range(10_000):
        filter.add(number.to_bytes(8, "little"))
    assert filter.num_layers == layers
    assert filter.estimated_count == 10_000


def test_sizes_are_those_of_info() -> None:
    """Size in BF.INFO and CF.INFO: 240 for the default filter, 1080 for a capacity of 1000."""
    assert RedisBloomFilter().redis_size == 240
    assert RedisCuckooFilter(1000).redis_size == 1080
    assert (RedisCuckooFilter(1000, expansion=3).expansion, RedisBloomFilter().expansion) == (4, 2)


def test_nonscaling_filters_are_full_at_their_capacity() -> None:
    """Without expansion, or nonscaling, the key past the capacity is refused."""
    for filter in (RedisBloomFilter(0.01, 20, 0), RedisBloomFilter(0.01, 20, 2, nonscaling=True)):
        with pytest.raises(errors.FilterFull, match=r"^non scaling filter is full$"):
            [filter.add(key) for key in KEYS]
        assert (filter.estimated_count, filter.num_layers, filter.expansion) == (20, 1, None)
        assert filter.add(KEYS[0]) is False
    assert struct.unpack_from("<II", filter.chunk(0)[1], 12) == (13, 2)  # it keeps the expansion


def test_error_rates_are_capped() -> None:
    """An error rate above 0.25 is one of 0.25."""
    assert RedisBloomFilter(0.9).to_bytes() == RedisBloomFilter(0.25).to_bytes()


@pytest.mark.parametrize(
    ("one", "wrong"),
    [
        (RedisBloomFilter, {"error_rate": 0}),
        (RedisBloomFilter, {"error_rate": 1}),
        (RedisBloomFilter, {"error_rate": float("nan")}),
        (RedisBloomFilter, {"capacity": 0}),
        (RedisBloomFilter, {"capacity": 2**64}),
        (RedisBloomFilter, {"expansion": -1}),
        (RedisBloomFilter, {"expansion": 32769}),
        (RedisCuckooFilter, {"capacity": 0}),
        (RedisCuckooFilter, {"capacity": "many"}),
        (RedisCuckooFilter, {"bucket_size": 0}),
        (RedisCuckooFilter, {"bucket_size": 256}),
        (RedisCuckooFilter, {"max_iterations": 65536}),
        (RedisCuckooFilter, {"expansion": 2.5}),
    ],
)
def test_parameters_out_of_range_are_named(one: Any, wrong: dict[str, Any]) -> None:
    """What cannot be is refused, with its name."""
    with pytest.raises(errors.InvalidParameter, match=f"^{next(iter(wrong))} must be"):
        one(**wrong)


@both
def test_what_no_machine_has_is_refused(one: Any) -> None:
    """A filter beyond all memory is NotEnoughMemory, at once."""
    with pytest.raises(errors.NotEnoughMemory):
        one(capacity=2**44)
    with pytest.raises(errors.NotEnoughMemory):
        one.from_dump(several(one).chunk(0)[1], most=500)


def test_removing() -> None:
    """A key is there as often as it was added; what is not there cannot be removed."""
    filter = RedisCuckooFilter(1000)
    filter.add(b"a")
    filter.add(b"a")
    assert filter.add_new(b"a") is False
    assert (filter.count(b"a"), filter.count(b"b")) == (2, 0)
    assert filter.remove(b"a")
    assert b"a" in filter
    assert filter.discard(b"a")
    assert filter.discard(b"a") is False
    with pytest.raises(KeyError):
        filter.remove(b"a")
    assert (filter.estimated_count, filter.num_removed) == (0, 2)


@both
def test_clear(one: Any) -> None:
    """A cleared filter is as a new one, byte for byte."""
    filter = several(one)
    filter.clear()
    arguments = (0.01, 50) if one is RedisBloomFilter else (100, 2, 20, 2)
    assert filter.to_bytes() == one(*arguments).to_bytes()


@both
def test_info_and_repr(one: Any) -> None:
    """What `info` tells can be JSON, and its estimates are near the truth."""
    filter = several(one)
    info = filter.info()
    assert json.loads(json.dumps(info)) == info
    assert info["kind"] == one.kind
    wrong = sum(b"absent %d" % n in filter for n in range(20_000)) / 20_000
    assert wrong == pytest.approx(info["estimated_error_rate"], rel=0.3)
    assert f"{filter.estimated_count} keys in {filter.num_layers} layers" in repr(filter)


@both
def test_keys_are_bytes(one: Any) -> None:
    """Anything else is a TypeError."""
    filter: Any = one()
    for key in ("a", 1, None):
        with pytest.raises(TypeError):
            filter.add(key)
        with pytest.raises(TypeError):
            assert key in filter


@both
def test_they_are_kinds_of_files(one: Any, tmp_path: Path) -> None:
    """`bloomery.open` gives them back, read or mapped; another class says whose file it is."""
    filter, path = several(one), tmp_path / "f"
    filter.save(path)
    assert KINDS[one.kind] == one
    for how in ({}, {"mmap": True}, {"mmap": True, "verify": True}):
        opened: Any = bloomery.open(path, **how)
        assert type(opened) is one
        assert opened == filter
        assert all(key in opened for key in KEYS)
        assert opened.read_only is bool(how)
    with pytest.raises(errors.IncompatibleFilters, match=one.__name__):
        CuckooFilter.load(path)
    with pytest.raises(errors.IncompatibleFilters, match="cannot be made"):
        check_compatible(filter, filter, "a merge")


@both
def test_a_mapped_filter_is_read_only(one: Any, tmp_path: Path) -> None:
    """No change reaches a map."""
    filter, path = several(one), tmp_path / "f"
    filter.save(path)
    mapped = one.load(path, mmap=True)
    changes: list[tuple[str, tuple[Any, ...]]] = [
        *(("add", (b"x",)), ("clear", ()), ("load_chunk", (65, bytes(8)))),
        ("_add_hashes", (bytes(64),)),
    ]
    if one is RedisCuckooFilter:
        changes += [("discard", (KEYS[0],)), ("compact", ()), ("add_new", (b"new",))]
    for name, arguments in changes:
        with pytest.raises(errors.ReadOnlyFilter):
            getattr(mapped, name)(*arguments)
    assert path.read_bytes() == filter.to_bytes()


@both
def test_a_writable_map_is_changed_in_place(one: Any, tmp_path: Path) -> None:
    """Over a writable map the file changes with the filter, until that needs another layer."""
    filter, path = several(one), tmp_path / "f"
    filter.save(path)
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    head = mapped[: _native.HEADER_BYTES]
    live = open_filter(one, head, mapped, _native.HEADER_BYTES, writable=True)
    assert not live.read_only
    for target in (live, filter):
        for key in (b"one more", b"and another"):
            target.add(key)
    assert shares(live, mapped, _native.HEADER_BYTES)
    assert not shares(filter, mapped, _native.HEADER_BYTES)
    body = mapped[_native.HEADER_BYTES :]
    assert header(live, _native.checksum(body)) + body == filter.to_bytes()
    for number in range(2000):
        live.add(b"%d" % number)
    assert live.num_layers > filter.num_layers
    assert not shares(live, mapped, _native.HEADER_BYTES)
    with pytest.raises(errors.InvalidParameter):
        open_filter(one, head, bytes(body), 0, writable=True)


def test_chunks_do_not_cross_layers() -> None:
    """A dump has 256 KiB a part at most, ends with each layer, and ends for good."""
    filter, most = RedisBloomFilter(0.01, 250_000), 256 << 10
    size = filter.layers()[0]["num_bits"] // 8
    assert most < size < 2 * most
    first, data = filter.chunk(1)
    assert (first, len(data)) == (1 + most, most)
    last, data = filter.chunk(first)
    assert (last, len(data)) == (1 + size, size - most)
    for iterator in (last, last + 1, 2**62, -1, -(2**62)):
        assert filter.chunk(iterator) == (0, b"")
    assert RedisCuckooFilter().chunk(0) == (0, b"")


def test_chunks_that_do_not_fit() -> None:
    """BF.LOADCHUNK's refusals, in RedisBloom's words, and nothing has changed."""
    filter = RedisBloomFilter(0.01, 100)
    before = filter.to_bytes()
    for iterator, size, says in (
        (0, 8, "ERR received bad data"),
        (-5, 8, "ERR received bad data"),
        (-(2**63), 0, "ERR received bad data"),
        (7, 8, "ERR received bad data"),
        (8, 8, "ERR invalid offset - no link found"),
        (154, 8, "ERR invalid offset - no link found"),
        (2**62, 8, "ERR invalid offset - no link found"),
        (2**63 - 1, 0, "ERR invalid offset - no link found"),
        (146, 8, "ERR invalid chunk - Too big for current filter"),
        (147, 145, "ERR invalid chunk - Too big for current filter"),
    ):
        with pytest.raises(errors.CorruptData) as caught:
            filter.load_chunk(iterator, b"\xff" * size)
        assert str(caught.value) == says
    assert filter.to_bytes() == before
    filter.load_chunk(145, b"\xff" * 144)
    assert filter.info()["fill_ratio"] == 1


def test_cuckoo_chunks_that_do_not_fit() -> None:
    """CF.LOADCHUNK's refusals, in RedisBloom's words."""
    filter = RedisCuckooFilter(100)
    before = filter.to_bytes()
    for iterator, size in ((1, 8), (-1, 8), (2**62, 8), (131, 8), (140, 8), (9, 0)):
        with pytest.raises(errors.CorruptData, match=r"^Couldn't load chunk!$"):
            filter.load_chunk(iterator, b"\1" * size)
    assert filter.to_bytes() == before
    for head in (b"", bytes(37), bytes(39)):
        with pytest.raises(errors.CorruptData, match=r"^Invalid header$"):
            RedisCuckooFilter.from_dump(head)
    with pytest.raises(errors.CorruptData, match=r"^Couldn't create filter!$"):
        RedisCuckooFilter.from_dump(bytes(38))


def test_dumps_of_an_older_redisbloom() -> None:
    """One that rounded bits up to whole bytes only is taken as it is; it grows as they do today."""
    model = Bloom(0.01, 100, 2)
    link: Link = model.links[0]
    link.bits = 1104
    link.data = bytearray(138)
    for key in KEYS[:100]:
        model.add(key)
    filter = RedisBloomFilter.from_dump(model.header())
    for start in range(0, 138, 10):
        part = bytes(link.data[start : start + 10])
        filter.load_chunk(1 + start + len(part), part)
    for key in KEYS:
        assert filter.add(key) is model.add(key)
    assert [filter.chunk(0)[1], filter.chunk(1)[1]] == [model.header(), bytes(link.data)]
    assert RedisBloomFilter.from_bytes(filter.to_bytes()) == filter


@both
def test_threads_share_a_filter(one: Any) -> None:
    """Keys added from several threads at once are all there, and all counted."""
    filter = one(capacity=100_000)
    parts = [[b"%d %d" % (n, i) for i in range(5000)] for n in range(4)]

    def add(keys: list[bytes]) -> None:
        add_hashes(filter, b"".join(hashes_of(filter, key) for key in keys[:4000]))
        for key in keys[4000:]:
            filter.add(key)

    threads = [threading.Thread(target=add, args=(keys,)) for keys in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(key in filter for keys in parts for key in keys)
    assert filter.estimated_count == pytest.approx(20_000, rel=0.01)


def test_hashes_of_the_wrong_length() -> None:
    """Half a hash is refused, and nothing is added."""
    for one, size in ((RedisBloomFilter, 24), (RedisBloomFilter, 7), (RedisCuckooFilter, 7)):
        with pytest.raises(errors.InvalidParameter, match=f"{size} bytes are no hashes"):
            add_hashes(one(), bytes(size))


def test_compaction_gives_layers_back() -> None:
    """After many removals newer layers go; what is left is found as before."""
    filter, model = filled(RedisCuckooFilter, 50), Cuckoo(50, 2, 20, 1)
    for key in KEYS:
        model.add(key)
    most = filter.num_layers
    for key in KEYS[:450]:
        filter.remove(key)
        model.remove(key)
    assert filter.num_layers == len(model.subs) < most
    assert all(key in filter for key in KEYS[450:])
    assert filter.chunk(0)[1] == model.header()
