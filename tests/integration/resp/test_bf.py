"""BF.*, reply by reply and error by error, as RedisBloom gives them; either layout and protocol."""

import pytest

from integration.resp.wire import Wire, check, dump
from integration.servers import BloomeryServer

SCRIPTS = {
    "reserving": """
        BF.RESERVE a 0.01 100 => +OK
        BF.RESERVE a 0.01 100 => -ERR item exists
        bf.reserve b 0.01 100 expansion 4 => +OK
        BF.RESERVE c 0.01 100 NONSCALING => +OK
        BF.RESERVE d 0.01 100 EXPANSION 0 => +OK
        BF.RESERVE hex 0x1p-7 100 => +OK
        BF.RESERVE e 0.01 100 NONSCALING EXPANSION 0 => +OK
        TYPE a => +MBbloom--
        BF.INFO a EXPANSION => [:2] | {+Expansion rate: :2}
        BF.INFO b EXPANSION => [:4] | {+Expansion rate: :4}
        BF.INFO c EXPANSION => [nil] | {+Expansion rate: null}
        BF.INFO d EXPANSION => [nil] | {+Expansion rate: null}
        BF.INFO e EXPANSION => [nil] | {+Expansion rate: null}
        """,
    "reserving wrongly": """
        BF.RESERVE => -ERR wrong number of arguments for 'bf.reserve' command
        BF.RESERVE a => -ERR wrong number of arguments for 'bf.reserve' command
        BF.RESERVE a 0.01 => -ERR wrong number of arguments for 'bf.reserve' command
        # Words that RedisBloom ignores.
        BF.RESERVE a 0.01 100 ONFUL reject => \
            -Unknown argument received: 'ONFUL', did you mean ONFULL?
        BF.RESERVE a 0.01 100 kindd rotating => \
            -Unknown argument received: 'kindd', did you mean KIND?
        BF.RESERVE a 0.01 100 EXPANSIN 4 => \
            -Unknown argument received: 'EXPANSIN', did you mean EXPANSION?
        BF.RESERVE a 0.01 100 NONSCALING 7 => \
            -Unknown argument received: '7', there are EXPANSION, KIND, WINDOW, \
            GENERATIONS, COUNTERBITS, REGIONS, HASHER, ONFULL, FULLAT, WARNAT, WARNWITHIN, \
            GRACE, NONSCALING
        BF.RESERVE a 0.01 100 EXPANSION 4 EXPANSION => -ERR EXPANSION comes twice
        # Words of another kind.
        BF.RESERVE a 0.01 100 KIND bloom COUNTERBITS 4 => \
            -ERR a bloom filter has no counter_bits: it goes with kind counting
        BF.RESERVE a 0.01 100 KIND scalable NONSCALING => \
            -ERR NONSCALING and KIND do not go together: ONFULL is for any kind
        BF.RESERVE a x 100 => -ERR bad error rate
        BF.RESERVE a "" 100 => -ERR bad error rate
        BF.RESERVE a x x => -ERR bad error rate
        BF.RESERVE a 0 100 => -ERR error rate must be in the range (0.000000, 1.000000)
        BF.RESERVE a 1 100 => -ERR error rate must be in the range (0.000000, 1.000000)
        BF.RESERVE a -0.5 100 => -ERR error rate must be in the range (0.000000, 1.000000)
        BF.RESERVE a 0.01 x => -ERR bad capacity
        BF.RESERVE a 0.01 1.5 => -ERR bad capacity
        BF.RESERVE a 0.01 99999999999999999999 => -ERR bad capacity
        BF.RESERVE a 0.01 0 => -ERR capacity must be in the range [1, 1073741824]
        BF.RESERVE a 0.01 -1 => -ERR capacity must be in the range [1, 1073741824]
        BF.RESERVE a 0.01 1073741825 => -ERR capacity must be in the range [1, 1073741824]
        BF.RESERVE a 0.01 100 EXPANSION => -ERR no expansion
        BF.RESERVE a 0.01 100 EXPANSION x => -ERR bad expansion
        BF.RESERVE a 0.01 100 EXPANSION -1 => -ERR expansion must be in the range [0, 32768]
        BF.RESERVE a 0.01 100 EXPANSION 32769 => -ERR expansion must be in the range [0, 32768]
        BF.RESERVE a 0.01 100 NONSCALING EXPANSION -1 => -Nonscaling filters cannot expand
        BF.RESERVE a -0 100 => -ERR error rate must be in the range (0.000000, 1.000000)
        BF.RESERVE a inf 100 => -ERR error rate must be in the range (0.000000, 1.000000)
        BF.RESERVE a nan 100 => -ERR bad error rate
        BF.RESERVE a 1e-400 100 => -ERR bad error rate
        BF.RESERVE a 1e400 100 => -ERR bad error rate
        BF.RESERVE a " 0.1" 100 => -ERR bad error rate
        BF.RESERVE a 0.01 -0 => -ERR bad capacity
        BF.RESERVE a 0.01 +5 => -ERR bad capacity
        BF.RESERVE a 0.01 100 NONSCALING EXPANSION 2 => -Nonscaling filters cannot expand
        BF.RESERVE a 0.01 100 EXPANSION 1 NONSCALING => -Nonscaling filters cannot expand
        EXISTS a => :0
        """,
    "adding and asking": """
        BF.ADD a x => :1 | #t
        BF.ADD a x => :0 | #f
        BF.EXISTS a x => :1 | #t
        BF.EXISTS a y => :0 | #f
        BF.MADD a x y z y => [:0, :1, :1, :0] | [#f, #t, #t, #f]
        BF.MADD new x => [:1] | [#t]
        BF.MEXISTS a x nosuch z => [:1, :0, :1] | [#t, #f, #t]
        BF.CARD a => :3
        BF.ADD a "" => :1 | #t
        BF.EXISTS a "" => :1 | #t
        BF.CARD a => :4
        bf.add a lower => :1 | #t
        Bf.Exists a lower => :1 | #t
        BF.EXISTS missing x => :0 | #f
        BF.MEXISTS missing x y => [:0, :0] | [#f, #f]
        BF.CARD missing => :0
        BF.INFO a ITEMS => [:5] | {+Number of items inserted: :5}
        """,
    "adding and asking wrongly": """
        BF.ADD a => -ERR wrong number of arguments for 'bf.add' command
        BF.ADD a x y => -ERR wrong number of arguments for 'bf.add' command
        BF.MADD a => -ERR wrong number of arguments for 'bf.madd' command
        BF.EXISTS a => -ERR wrong number of arguments for 'bf.exists' command
        BF.EXISTS a x y => -ERR wrong number of arguments for 'bf.exists' command
        BF.MEXISTS a => -ERR wrong number of arguments for 'bf.mexists' command
        BF.CARD => -ERR wrong number of arguments for 'bf.card' command
        BF.CARD a b => -ERR wrong number of arguments for 'bf.card' command
        BF.FOO a b => -ERR unknown command 'BF.FOO', with args beginning with: 'a' 'b'
        BF.EXI => -ERR unknown command 'BF.EXI', with args beginning with: (did you mean BF.EXISTS?)
        DBSIZE => :0
        """,
    "inserting": """
        BF.INSERT a ITEMS x y x => [:1, :1, :0] | [#t, #t, #f]
        BF.INSERT a NOCREATE ITEMS z => [:1] | [#t]
        BF.INSERT b CAPACITY 1000 ERROR 0.001 EXPANSION 3 ITEMS x => [:1] | [#t]
        BF.INFO b CAPACITY => [:1000] | {+Capacity: :1000}
        BF.INFO b EXPANSION => [:3] | {+Expansion rate: :3}
        BF.INSERT c NONSCALING ITEMS x => [:1] | [#t]
        BF.INFO c EXPANSION => [nil] | {+Expansion rate: null}
        # Together they are accepted, and NONSCALING wins.
        BF.INSERT d NONSCALING EXPANSION 4 ITEMS x => [:1] | [#t]
        BF.INFO d EXPANSION => [nil] | {+Expansion rate: null}
        # All behind ITEMS are items.
        BF.INSERT e capacity 500 items x ITEMS CAPACITY => [:1, :1, :1] | [#t, #t, #t]
        BF.INFO e CAPACITY => [:500] | {+Capacity: :500}
        # Options do not matter to a filter that is there.
        BF.INSERT b CAPACITY 7 ERROR 0.5 NONSCALING ITEMS y => [:1] | [#t]
        BF.INFO b CAPACITY => [:1000] | {+Capacity: :1000}
        """,
    "inserting wrongly": """
        BF.INSERT a ITEMS => -ERR wrong number of arguments for 'bf.insert' command
        BF.INSERT a CAPACITY 100 ITEMS => -ERR wrong number of arguments for 'bf.insert' command
        BF.INSERT a NOCREATE ITEMS x => -ERR not found
        BF.INSERT a ERROR 0.1 EXPANSION => -ERR wrong number of arguments for 'bf.insert' command
        BF.INSERT a ERROR 0.1 CAPACITY => -ERR wrong number of arguments for 'bf.insert' command
        BF.INSERT a CAPACITY x ITEMS x => -Bad capacity
        BF.INSERT a CAPACITY 0 ITEMS x => -Bad capacity
        BF.INSERT a CAPACITY 1073741825 ITEMS x => -Bad capacity
        BF.INSERT a ERROR x ITEMS x => -Bad error rate
        BF.INSERT a ERROR 0 ITEMS x => -Bad error rate
        BF.INSERT a ERROR 1 ITEMS x => -Bad error rate
        BF.INSERT a EXPANSION x ITEMS x => -Bad expansion
        BF.INSERT a EXPANSION -1 ITEMS x => -Bad expansion
        BF.INSERT a EXPANSION 32769 ITEMS x => -Bad expansion
        BF.INSERT a CAPACITY "" ITEMS x => -Bad capacity
        BF.INSERT a NO_CREATE ITEMS x => \
            -Unknown argument received: 'NO_CREATE', did you mean NOCREATE?
        BF.INSERT a ITEM x => -Unknown argument received: 'ITEM', did you mean ITEMS?
        BF.INSERT a ERROR 0.1 ERROR 0.2 ITEMS x => -ERR ERROR comes twice
        EXISTS a => :0
        """,
    "a filter that is full": """
        BF.RESERVE ns 0.0001 2 NONSCALING => +OK
        BF.MADD ns a b c d => [:1, :1, -ERR non scaling filter is full] | \
            [#t, #t, -ERR non scaling filter is full]
        BF.ADD ns c => -ERR non scaling filter is full
        BF.ADD ns a => :0 | #f
        BF.MADD ns a b c d => [:0, :0, -ERR non scaling filter is full] | \
            [#f, #f, -ERR non scaling filter is full]
        BF.INSERT ns ITEMS a c => [:0, -ERR non scaling filter is full] | \
            [#f, -ERR non scaling filter is full]
        BF.CARD ns => :2
        BF.INFO ns CAPACITY => [:2] | {+Capacity: :2}
        """,
    "information": """
        BF.RESERVE a 0.01 100 => +OK
        BF.MADD a x y => [:1, :1] | [#t, #t]
        BF.INFO a FILTERS => [:1] | {+Number of filters: :1}
        BF.INFO a items => [:2] | {+Number of items inserted: :2}
        BF.INFO a CAPACITY => [:100] | {+Capacity: :100}
        BF.INFO a FOO => -Invalid information value
        BF.INFO a SIZE x => -ERR wrong number of arguments for 'bf.info' command
        BF.INFO => -ERR wrong number of arguments for 'bf.info' command
        BF.INFO missing => -ERR not found
        BF.INFO missing FOO => -ERR not found
        BF.DEBUG missing => -ERR not found
        BF.DEBUG => -ERR wrong number of arguments for 'bf.debug' command
        """,
    "another type": """
        CF.ADD cuckoo x => :1 | #t
        TYPE cuckoo => +MBbloomCF
        BF.RESERVE cuckoo 0.01 100 => -WRONGTYPE
        BF.ADD cuckoo x => -WRONGTYPE
        BF.MADD cuckoo x => -WRONGTYPE
        BF.INSERT cuckoo ITEMS x => -WRONGTYPE
        BF.CARD cuckoo => -WRONGTYPE
        BF.INFO cuckoo => -WRONGTYPE
        BF.DEBUG cuckoo => -WRONGTYPE
        BF.SCANDUMP cuckoo 0 => -WRONGTYPE
        BF.LOADCHUNK cuckoo 1 x => -WRONGTYPE
        # RedisBloom says 0 to these two: x is in it, so a no would be wrong.
        BF.EXISTS cuckoo x => -WRONGTYPE
        BF.MEXISTS cuckoo x y => -WRONGTYPE
        """,
    "dumping and loading wrongly": """
        BF.ADD a x => :1 | #t
        BF.SCANDUMP a => -ERR wrong number of arguments for 'bf.scandump' command
        BF.SCANDUMP missing 0 => -ERR not found
        BF.SCANDUMP a x => -Second argument must be numeric
        BF.SCANDUMP a -1 => [:0, ""]
        BF.SCANDUMP a 99999999 => [:0, ""]
        BF.LOADCHUNK a 1 => -ERR wrong number of arguments for 'bf.loadchunk' command
        BF.LOADCHUNK a x data => -ERR Second argument must be numeric
        BF.LOADCHUNK missing 2 data => -ERR not found
        BF.LOADCHUNK missing 0 data => -ERR not found
        BF.LOADCHUNK missing -1 data => -ERR not found
        BF.LOADCHUNK missing 1 data => -ERR received bad data
        BF.LOADCHUNK missing 1 "" => -ERR received bad data
        BF.LOADCHUNK a 0 data => -ERR received bad data
        BF.LOADCHUNK a -5 data => -ERR received bad data
        BF.LOADCHUNK a 3 data => -ERR received bad data
        BF.LOADCHUNK a 99999999 data => -ERR invalid offset - no link found
        EXISTS missing => :0
        BF.EXISTS a x => :1 | #t
        """,
}


@pytest.mark.parametrize("layout", ["bloomery", "redisbloom"])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_replies_are_those_of_redisbloom(
    empty: BloomeryServer, protocol: int, layout: str, script: str
) -> None:
    """Whatever is asked with BF.*, right or wrong, the reply is RedisBloom's."""
    with Wire(empty.resp_port, protocol) as wire:
        assert wire.ask("CONFIG", "SET", "bf-layout", layout) == b"+OK\r\n"
        check(wire, protocol, script)


# What follows is about RedisBloom's own layout: sizes, bits and dumps.
STRUCTURE = """
    BF.RESERVE a 0.01 100 => +OK
    BF.INFO a => [+Capacity, :100, +Size, :240, +Number of filters, :1, \
        +Number of items inserted, :0, +Expansion rate, :2] | \
        {+Capacity: :100, +Size: :240, +Number of filters: :1, \
        +Number of items inserted: :0, +Expansion rate: :2}
    BF.INFO a SIZE => [:240] | {+Size: :240}
    MEMORY USAGE a => :272
    BF.DEBUG a => ["size:0", \
        "bytes:144 bits:1152 hashes:8 hashwidth:64 capacity:100 size:0 ratio:0.005"]
    BF.RESERVE grown 0.01 2 EXPANSION 2 => +OK
    BF.MADD grown a b c => [:1, :1, :1] | [#t, #t, #t]
    BF.DEBUG grown => ["size:3", \
        "bytes:8 bits:64 hashes:8 hashwidth:64 capacity:2 size:2 ratio:0.005", \
        "bytes:8 bits:64 hashes:9 hashwidth:64 capacity:4 size:1 ratio:0.0025"]
    BF.INFO grown => [+Capacity, :6, +Size, :176, +Number of filters, :2, \
        +Number of items inserted, :3, +Expansion rate, :2] | \
        {+Capacity: :6, +Size: :176, +Number of filters: :2, \
        +Number of items inserted: :3, +Expansion rate: :2}
    BF.LOADCHUNK grown 12 data => -ERR invalid chunk - Too big for current filter
    """


def test_structure_is_that_of_redisbloom(empty: BloomeryServer, protocol: int) -> None:
    """In RedisBloom's layout the sizes, layers, bits and hashes are RedisBloom's own."""
    with Wire(empty.resp_port, protocol) as wire:
        assert wire.ask("CONFIG", "SET", "bf-layout", "redisbloom") == b"+OK\r\n"
        check(wire, protocol, STRUCTURE)


def test_a_rate_above_a_quarter_is_a_quarter(empty: BloomeryServer) -> None:
    """An error rate above 0.25 is capped without a word, as RedisBloom does."""
    with Wire(empty.resp_port) as wire:
        assert wire.ask("CONFIG", "SET", "bf-layout", "redisbloom") == b"+OK\r\n"
        for name, rate in (("capped", "0.9"), ("quarter", "0.25")):
            assert wire.ask("BF.RESERVE", name, rate, 100, "NONSCALING") == b"+OK\r\n"
        assert b"ratio:0.25" in wire.ask("BF.DEBUG", "capped")
        assert wire.ask("BF.DEBUG", "capped") == wire.ask("BF.DEBUG", "quarter")


@pytest.mark.parametrize("layout", ["bloomery", "redisbloom"])
def test_a_filter_is_dumped_and_loaded(empty: BloomeryServer, protocol: int, layout: str) -> None:
    """What SCANDUMP gives, LOADCHUNK takes: the copy knows every key, and nothing else is new."""
    keys = [f"key {number}" for number in range(3000)]
    with Wire(empty.resp_port, protocol) as wire:
        assert wire.ask("CONFIG", "SET", "bf-layout", layout) == b"+OK\r\n"
        assert wire.ask("BF.RESERVE", "a", "0.001", 500) == b"+OK\r\n"
        wire.ask("BF.MADD", "a", *keys)
        chunks = dump(wire, "BF.SCANDUMP", "a")
        for iterator, data in chunks:
            assert wire.ask("BF.LOADCHUNK", "b", iterator, data) == b"+OK\r\n"
        assert dump(wire, "BF.SCANDUMP", "b") == chunks
        asked = [f"other {number}" for number in range(3000)] + keys
        answers = wire.ask("BF.MEXISTS", "a", *asked)
        assert wire.ask("BF.MEXISTS", "b", *asked) == answers
        assert answers.endswith((b":1\r\n" if protocol == 2 else b"#t\r\n") * len(keys))
        assert wire.ask("BF.INFO", "b", "ITEMS") == wire.ask("BF.INFO", "a", "ITEMS")
