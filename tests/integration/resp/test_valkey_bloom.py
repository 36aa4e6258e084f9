"""valkey-bloom's extensions: options of BF.INSERT, fields of BF.INFO, BF.LOAD."""

from __future__ import annotations

from integration.resp.wire import Wire, check, request, shown, told
from integration.servers import BloomeryServer, Serve

SEED = "0123456789abcdef0123456789abcdef"

INSERT = f"""
    BF.INSERT a => []
    BF.INFO a CAPACITY => [:100] | {{+Capacity: :100}}
    BF.CARD a => :0
    BF.INSERT a => []
    BF.INSERT a CAPACITY 700 => []
    BF.INFO a CAPACITY => [:100] | {{+Capacity: :100}}
    BF.INSERT a ITEMS => -ERR wrong number of arguments for 'bf.insert' command
    BF.INSERT b NOCREATE => -ERR not found
    BF.INSERT b CAPACITY => -ERR wrong number of arguments for 'bf.insert' command
    BF.INSERT b SEED => -ERR wrong number of arguments for 'bf.insert' command
    BF.INSERT b TIGHTENING x ITEMS y => -ERR bad tightening ratio
    BF.INSERT b TIGHTENING 0 => -ERR (0 < tightening ratio range < 1)
    BF.INSERT b TIGHTENING 1 => -ERR (0 < tightening ratio range < 1)
    BF.INSERT b SEED short => -ERR invalid seed
    BF.INSERT b VALIDATESCALETO x => -ERR bad capacity
    BF.INSERT b VALIDATESCALETO 0 => -ERR bad capacity
    BF.INSERT b NONSCALING VALIDATESCALETO 100 => \
        -ERR cannot use NONSCALING and VALIDATESCALETO options together
    BF.INSERT b EXPANSION 0 VALIDATESCALETO 100 => \
        -ERR cannot use NONSCALING and VALIDATESCALETO options together
    BF.INSERT b VALIDATESCALETO 999999999999999999 ITEMS x => \
        -ERR provided VALIDATESCALETO causes false positive to degrade to 0
    EXISTS b => :0
    BF.INSERT b ERROR 0.001 TIGHTENING 0.7 SEED {SEED} VALIDATESCALETO 5000 ITEMS x y => \
        [:1, :1] | [#t, #t]
    BF.INFO b TIGHTENING => ["0.7"] | {{+Tightening ratio: "0.7"}}
    BF.INFO b ERROR => ["0.001"] | {{+Error rate: "0.001"}}
    BF.INSERT c NONSCALING => []
    BF.INFO c ERROR => ["0.01"] | {{+Error rate: "0.01"}}
    BF.INFO c TIGHTENING => -Invalid information value
    BF.INFO c MAXSCALEDCAPACITY => -Invalid information value
    """


def test_insert_and_info(empty: BloomeryServer, protocol: int) -> None:
    """BF.INSERT without ITEMS creates a filter; a wrong option changes nothing, and BF.INFO shows
    what was given."""
    with Wire(empty.resp_port, protocol) as wire:
        check(wire, protocol, INSERT.replace("\\\n", " "))


def test_scaling_is_validated_against_the_memory(empty: BloomeryServer) -> None:
    """VALIDATESCALETO accepts what MAXSCALEDCAPACITY reports and not one key more, in both layouts;
    a filter in fact grows so far."""
    with Wire(empty.resp_port) as wire:
        for layout in ("bloomery", "redisbloom"):
            wire.ask("CONFIG", "SET", "bf-layout", layout, "maxmemory", 400_000)
            wire.ask("FLUSHALL")
            assert told(wire.ask("BF.INSERT", "a", "CAPACITY", 1000)) == "[]"
            [most] = shown(wire.ask("BF.INFO", "a", "MAXSCALEDCAPACITY"))
            count = int(most[1:])
            assert count > 50_000
            sized = ("CAPACITY", 1000, "VALIDATESCALETO")
            assert told(wire.ask("BF.INSERT", "b", *sized, count)) == "[]"
            assert told(wire.ask("BF.INSERT", "c", *sized, count + 1)) == (
                "-ERR provided VALIDATESCALETO causes bloom object to exceed memory limit"
            )
            assert told(wire.ask("EXISTS", "c")) == ":0"
            wire.ask("DEL", "b")
            wire.ask("CONFIG", "SET", "maxmemory", 0)
            wire.ask("BF.MADD", "a", *range(count))
            [size] = shown(wire.ask("BF.INFO", "a", "SIZE"))
            assert int(size[1:]) <= 410_000


def test_seeds_and_ratios_survive_a_restart(serve: Serve) -> None:
    """The seed and the ratio are in the log's record: after kill -9 the filter is the same. Equal
    seeds give equal dumps, other seeds other dumps."""
    server = serve()
    with Wire(server.resp_port) as wire:
        for name, seed in (("a", SEED), ("b", SEED), ("c", SEED[::-1])):
            words = ("TIGHTENING", 0.25, "SEED", seed, "ITEMS", "x", "y")
            assert told(wire.ask("BF.INSERT", name, *words)) == "[:1, :1]"
        before = [wire.ask("BF.DEBUG", name) for name in "abc"]
        dumps = [wire.ask("DUMP", name) for name in "abc"]
    assert dumps[0] == dumps[1] != dumps[2]
    server.kill()
    with Wire(serve(data=server.data).resp_port) as wire:
        assert [wire.ask("BF.DEBUG", name) for name in "abc"] == before
        assert [wire.ask("DUMP", name) for name in "abc"] == dumps
        assert told(wire.ask("BF.INFO", "a", "TIGHTENING")) == '["0.25"]'


def test_redisbloom_layout_has_its_own_ratio_and_seed(empty: BloomeryServer) -> None:
    """RedisBloom's layout has a ratio of 0.5 and a fixed seed: others are refused."""
    with Wire(empty.resp_port) as wire:
        wire.ask("CONFIG", "SET", "bf-layout", "redisbloom")
        assert "must be 0.5" in told(wire.ask("BF.INSERT", "a", "TIGHTENING", 0.7))
        assert "has no seed" in told(wire.ask("BF.INSERT", "a", "SEED", SEED))
        assert told(wire.ask("EXISTS", "a")) == ":0"
        assert told(wire.ask("BF.INSERT", "a", "TIGHTENING", 0.5, "ERROR", 0.02)) == "[]"
        assert told(wire.ask("BF.INFO", "a", "ERROR")) == '["0.02"]'
        assert told(wire.ask("BF.INFO", "a", "TIGHTENING")) == '["0.5"]'


def test_load(empty: BloomeryServer) -> None:
    """BF.LOAD creates a filter from a dump; a name that is taken, and data of another server, are
    refused and change nothing."""
    with Wire(empty.resp_port) as wire:
        wire.ask("BF.MADD", "a", *range(1000))
        data = shown(wire.ask("DUMP", "a"))[1:].encode("latin-1")
        assert told(wire.ask("BF.LOAD", "b", data)) == "+OK"
        assert wire.ask("BF.MEXISTS", "b", *range(1000)).count(b":1") == 1000
        assert told(wire.ask("BF.LOAD", "b", data)) == "-BUSYKEY Target key name already exists."
        for wrong in (b"", b"\x01 valkey", data[:-1], data + b"x"):
            reply = told(wire.ask("BF.LOAD", "c", wrong))
            assert reply.startswith("-ERR bloom object decoding failed"), reply
        assert told(wire.ask("EXISTS", "c")) == ":0"
        wire.send(request("MULTI") + request("BF.LOAD", "c", data) + request("EXEC"))
        assert [told(wire.reply()) for _ in range(3)] == ["+OK", "+QUEUED", "[+OK]"]


def test_a_filter_has_a_memory_limit(serve: Serve) -> None:
    """Beyond bytes-per-filter no filter is created and none grows: keys for which there is no room
    get an error, acknowledged keys stay, and other filters grow. After kill -9 it is the same."""
    server = serve("--set", "bytes-per-filter=100000", "--set", "bf-initial-size=1000")
    full, kept = "-ERR problem inserting into filter", dict[str, list[int]]()
    with Wire(server.resp_port) as wire:
        refused = told(wire.ask("BF.RESERVE", "a", "0.01", 1_000_000))
        assert refused == "-ERR Insufficient memory to create filter"
        assert told(wire.ask("EXISTS", "a")) == ":0"
        for name, layout in (("own", "bloomery"), ("theirs", "redisbloom")):
            wire.ask("CONFIG", "SET", "bf-layout", layout)
            replies = list[str]()
            for start in range(0, 100_000, 2500):
                replies += shown(wire.ask("BF.MADD", name, *range(start, start + 2500)))
            assert full in replies
            kept[name] = [key for key, reply in enumerate(replies) if reply != full]
            assert len(kept[name]) > 10_000
            assert told(wire.ask("BF.ADD", name, "one more")) == full
            assert wire.ask("BF.MEXISTS", name, *kept[name]).count(b":1") == len(kept[name])
            [size] = shown(wire.ask("BF.INFO", name, "SIZE"))
            assert 40_000 < int(size[1:]) <= 100_000
        before = [wire.ask("BF.DEBUG", name) for name in kept]
    server.kill()
    with Wire(serve(data=server.data).resp_port) as wire:
        assert [wire.ask("BF.DEBUG", name) for name in kept] == before
        for name, keys in kept.items():
            assert wire.ask("BF.MEXISTS", name, *keys).count(b":1") == len(keys)
        assert told(wire.ask("BF.ADD", "own", "one more")) == ":1"
