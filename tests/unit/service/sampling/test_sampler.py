"""The sampler in a server: rounds, what others ask it, what gets to the registry."""

import asyncio
import math
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.config.settings import Settings
from bloomery.service.domain.entry import Entry
from bloomery.service.sampling.sample import HOUR, MINUTE, RAW, Sample
from bloomery.service.server import Server
from unit.service.inside import running
from unit.service.rows import sample
from waiting import wait_until_async

pytestmark = pytest.mark.slow


async def filled(
    server: Server, name: bytes = b"users", keys: int = 500, **settings: object
) -> Entry:
    """A plain filter with room for 1,000 keys, and so many in it."""
    chosen = {"capacity": 1000, "error_rate": 0.01} | settings
    entry: Entry = await server.parts.commands.create(name, "bloom", **chosen)
    await server.parts.commands.add(name, [b"key %d" % number for number in range(keys)])
    return entry


def flush(server: Server) -> None:
    """Hand the samples that wait to the registry's writer."""
    server.parts.sampler.flush()


def prune(server: Server) -> None:
    """Let the registry forget what is older than it is to be kept."""
    server.parts.sampler.prune(1.0)


async def sample_all(server: Server) -> None:
    """A round over all filters, which may take a hundredth of a second."""
    await server.parts.sampler.sample_all(0.01)


async def flushed(server: Server) -> None:
    """Let the registry have all samples that were taken."""
    flush(server)
    assert await asyncio.to_thread(server.parts.publisher.writer.flush, 30)


@pytest.mark.slow
def test_each_filter_is_sampled_again_and_again(tmp_path: Path) -> None:
    """Within seconds each filter has a sample, and others are told of each."""

    async def main() -> None:
        async with running(tmp_path, sample_seconds=1) as server:
            told: list[tuple[bytes, Sample]] = []
            server.parts.sampler.on_sample.subscribe(
                lambda entry, sample: told.append((entry.name, sample))
            )
            entries = [await filled(server, name) for name in (b"a", b"b", b"c")]
            assert server.parts.sampler.last(entries[0]) is None
            server.parts.commands.contains(b"a", [b"key 1", b"absent"])
            assert await wait_until_async(lambda: len(told) >= 6)
            assert {name for name, _ in told} == {b"a", b"b", b"c"}
            last = server.parts.sampler.last(entries[0])
            assert last is not None
            assert last.items == 500
            assert last.capacity == 1000
            assert last.estimated_count == pytest.approx(500, abs=20)
            assert last.observed_low <= last.observed_error_rate <= last.observed_high
            assert last.probes == 256
            assert server.parts.sampler.round_seconds > 0

    asyncio.run(main())


def test_the_last_sample_is_part_of_what_is_told_about_a_filter(tmp_path: Path) -> None:
    """`info` has it, with the forecast in words, ready for JSON; before the first there is none."""

    async def main() -> None:
        async with running(tmp_path, sample_seconds=0) as server:
            entry = await filled(server)
            assert server.parts.commands.info(entry)["sample"] is None
            server.parts.sampler.take(entry)
            await server.parts.commands.add(
                b"users", [b"more %d" % number for number in range(600)]
            )
            server.parts.sampler.take(entry)
            told = server.parts.commands.info(entry)["sample"]
            assert told["items"] == 1000
            assert told["forecast"] == "full"
            assert told["full_in_seconds"] == 0.0
            assert not [value for value in told.values() if value != value]

    asyncio.run(main())


def test_samples_are_read_from_the_registry(tmp_path: Path) -> None:
    """By span and time, oldest first, the latest of too many."""

    async def main() -> None:
        async with running(tmp_path, sample_seconds=0) as server:
            entry = await filled(server)
            now = server.parts.engine.state.now
            server.parts.sampler.pending.extend(
                [
                    *(
                        sample(entry.id, now - 100 + at, count=at, fill_ratio=0.5)
                        for at in range(10)
                    ),
                    *(sample(entry.id, now - 7200 + at, span=MINUTE) for at in range(3)),
                    sample(entry.id, now - 10 * 86400, span=HOUR, seconds=3600.0, adds=7200),
                ]
            )
            await flushed(server)
            ask = server.parts.sampler.samples
            found = await ask(entry)
            assert [row["estimated_count"] for row in found] == list(range(10))
            assert found[0]["at"] == pytest.approx(now - 100, abs=1e-3)
            assert found[0]["span"] == RAW
            assert [row["estimated_count"] for row in await ask(entry, limit=2)] == [8, 9]
            some = await ask(entry, since=now - 98, until=now - 95)
            assert [row["estimated_count"] for row in some] == [2, 3, 4]
            assert len(await ask(entry, since=now - 8000)) == 3
            assert len(await ask(entry, since=now - 8000, span=RAW)) == 10
            (hour,) = await ask(entry, since=0)
            assert hour["adds_per_second"] == 2
            assert len(await ask(entry, since=0, span=HOUR)) == 1
            with pytest.raises(errors.InvalidParameter, match=r"span is 7, must be 0 .*60 or 3600"):
                await ask(entry, span=7)

    asyncio.run(main())


def test_a_registry_that_is_away(tmp_path: Path) -> None:
    """Reading says so, sampling goes on, and what is lost is counted."""

    async def main() -> None:
        away = f"sqlite:///{tmp_path}/nowhere/registry.sqlite"
        async with running(tmp_path / "data", registry=away, sample_seconds=0) as server:
            entry = await filled(server)
            with pytest.raises(errors.RegistryUnavailable):
                await server.parts.sampler.samples(entry)
            assert server.parts.sampler.take(entry) is not None
            assert await wait_until_async(lambda: not server.parts.publisher.writer.healthy)
            flush(server)
            assert server.parts.publisher.writer.lost_samples == 1

    asyncio.run(main())


def test_what_is_over_is_removed(tmp_path: Path) -> None:
    """A minute's work: samples that are older than they are kept go, each span by its own time."""

    async def main() -> None:
        async with running(tmp_path, sample_seconds=0, sample_keep="10min") as server:
            entry = await filled(server)
            now = server.parts.engine.state.now
            server.parts.sampler.pending.extend(
                [
                    sample(entry.id, now - age, span=span)
                    for span in (RAW, MINUTE, HOUR)
                    for age in (60, 1200, 2 * 86400, 100 * 86400)
                ]
            )
            await flushed(server)
            prune(server)
            await flushed(server)
            ask, left = server.parts.sampler.samples, {}
            for span in (RAW, MINUTE, HOUR):
                left[span] = len(await ask(entry, since=0, span=span))
            assert left == {RAW: 1, MINUTE: 2, HOUR: 3}

    asyncio.run(main())


def test_a_span_that_is_not_kept_is_not_written(tmp_path: Path) -> None:
    """With sample-keep 0 there are no raw samples in the registry, but still the last one."""

    async def main() -> None:
        async with running(tmp_path, sample_seconds=0, sample_keep=0) as server:
            entry = await filled(server)
            assert server.parts.sampler.take(entry) is not None
            server.parts.sampler.pending.append(
                sample(entry.id, server.parts.engine.state.now, span=MINUTE)
            )
            await flushed(server)
            assert await server.parts.sampler.samples(entry, since=0, span=RAW) == []
            assert len(await server.parts.sampler.samples(entry)) == 1
            assert server.parts.sampler.last(entry) is not None

    asyncio.run(main())


def test_a_filter_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    """A renamed filter keeps its past; a dropped one leaves nothing, and a new one of its name
    begins anew."""

    async def main() -> None:
        async with running(tmp_path, sample_seconds=0) as server:
            entry = await filled(server)
            server.parts.sampler.take(entry)
            await server.parts.commands.rename(b"users", b"people")
            assert server.parts.sampler.take(entry) is not None
            await server.parts.commands.drop(b"people")
            assert server.parts.sampler.last(entry) is None
            assert server.parts.sampler.take(entry) is None
            again = await filled(server, b"people")
            assert server.parts.sampler.last(again) is None

    asyncio.run(main())


def test_every_kind_can_be_sampled(tmp_path: Path) -> None:
    """Also a bank, which tells neither a fill nor an error rate; and what is loading waits."""

    async def main() -> None:
        async with running(tmp_path, sample_seconds=0) as server:
            kinds = ("bloom", "scalable", "counting", "deletable", "cuckoo", "rotating", "bank")
            for kind in kinds:
                name = kind.encode()
                entry = await server.parts.commands.create(
                    name, kind, capacity=100, error_rate=0.01
                )
                await server.parts.commands.add(name, [b"user\tkey"])
                taken = server.parts.sampler.take(entry)
                assert taken is not None
                assert taken.items == 1
                assert math.isnan(taken.fill_ratio) == (kind == "bank")
                assert taken.probes == (0 if kind == "bank" else 256)
            await flushed(server)
            (bank,) = await server.parts.sampler.samples(entry)
            unknown = ("fill_ratio", "estimated_error_rate", "observed_error_rate", "observed_low")
            assert [bank[name] for name in unknown] == [None] * 4
            head = await server.parts.commands.export_head(b"bloom")
            loading = await server.parts.commands.load(b"loading", 1, head)
            assert server.parts.sampler.take(loading) is None

    asyncio.run(main())


@pytest.mark.slow
def test_many_filters_degrade_and_do_not_stall(tmp_path: Path) -> None:
    """A round that would take more than a hundredth of the time takes longer, and between its
    slices everybody else has a turn."""

    async def main() -> None:
        async with running(tmp_path, sample_seconds=0) as server:
            for number in range(200):
                await server.parts.commands.create(
                    b"%d" % number, "bloom", capacity=100, error_rate=0.01
                )
            began = time.monotonic()
            going = asyncio.ensure_future(sample_all(server))
            turns = 0
            while not going.done():
                turns += 1
                await asyncio.sleep(0.001)
            assert time.monotonic() - began > 0.1  # 200 times 5 µs at the least, and 99 as long
            assert turns > 20
            assert all(
                server.parts.sampler.last(one) for one in server.parts.engine.state.filters.values()
            )

    asyncio.run(main())


def test_trouble_with_one_filter_is_not_that_of_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is told of a sample may fail: that is told to the operator, and the round goes on."""

    async def main() -> None:
        async with running(tmp_path, sample_seconds=0) as server:
            entries = [await filled(server, name) for name in (b"a", b"b")]

            def fail(entry: Entry, sample: Sample) -> None:
                if entry is entries[0]:
                    raise ZeroDivisionError

            server.parts.sampler.on_sample.subscribe(fail)
            await sample_all(server)
            assert server.parts.sampler.last(entries[1]) is not None
            said = [line.message for line in caplog.records if line.levelname == "ERROR"]
            assert said == ["a filter was not sampled"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90", 90), ("15min", 900), ("7d", 604800)]
)
def test_how_long_samples_are_kept_as_people_write_it(text: str, seconds: int) -> None:
    """Seconds, or a number and a unit."""
    settings = Settings()
    settings.set("sample-keep", text)
    assert settings.get("sample-keep") == str(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-1", "11000d", "1e400d"])
def test_how_long_samples_cannot_be_kept(text: str) -> None:
    """What is no time is refused, in words."""
    with pytest.raises(errors.InvalidParameter, match="must be seconds, or a time such as 15min"):
        Settings().set("sample-keep-hours", text)


def test_a_wrong_clock_at_the_start_removes_nothing(tmp_path: Path) -> None:
    """A server that is started twenty years later, by its clock, keeps what it has."""

    async def main(check: bool) -> None:
        async with running(tmp_path, sample_seconds=0) as server:
            if check:
                (entry,) = server.parts.engine.state.filters.values()
            else:
                entry = await filled(server)
                server.parts.sampler.pending.extend(
                    [
                        sample(entry.id, server.parts.engine.state.now - age, span=span)
                        for span in (RAW, MINUTE, HOUR)
                        for age in (1, 60, 600)
                    ]
                )
            await flushed(server)
            prune(server)
            await flushed(server)
            for span in (RAW, MINUTE, HOUR):
                assert len(await server.parts.sampler.samples(entry, since=0, span=span)) == 3

    asyncio.run(main(check=False))
    with closing(sqlite3.connect(tmp_path / "registry.sqlite")) as registry, registry:
        registry.execute("UPDATE BloomFilterStats SET sampled_at = '2006' || substr(sampled_at, 5)")
    asyncio.run(main(check=True))
