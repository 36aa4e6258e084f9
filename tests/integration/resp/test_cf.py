"""CF.*, reply by reply and error by error, as RedisBloom gives them; both protocols."""

import pytest

from integration.resp.wire import Wire, check, dump
from integration.servers import BloomeryServer

SCRIPTS = {
    "reserving": """
        CF.RESERVE a 1000 => +OK
        CF.RESERVE a 1000 => -ERR item exists
        cf.reserve b 1000 bucketsize 4 maxiterations 50 expansion 3 => +OK
        TYPE a => +MBbloomCF
        CF.INFO a => [+Size, :1080, +Number of buckets, :512, +Number of filters, :1, \
            +Number of items inserted, :0, +Number of items deleted, :0, +Bucket size, :2, \
            +Expansion rate, :1, +Max iterations, :20] | \
            {+Size: :1080, +Number of buckets: :512, +Number of filters: :1, \
            +Number of items inserted: :0, +Number of items deleted: :0, +Bucket size: :2, \
            +Expansion rate: :1, +Max iterations: :20}
        CF.DEBUG a => \
            "bktsize:2 buckets:512 items:0 deletes:0 filters:1 max_iterations:20 expansion:1"
        # An expansion is rounded up to a power of two.
        CF.DEBUG b => \
            "bktsize:4 buckets:256 items:0 deletes:0 filters:1 max_iterations:50 expansion:4"
        """,
    "reserving wrongly": """
        CF.RESERVE => -ERR wrong number of arguments for 'cf.reserve' command
        CF.RESERVE a => -ERR wrong number of arguments for 'cf.reserve' command
        CF.RESERVE a 1000 BUCKETSIZE => -ERR wrong number of arguments for 'cf.reserve' command
        CF.RESERVE a x => -Bad capacity
        CF.RESERVE a 1000 MAXITERATIONS x => -Couldn't parse MAXITERATIONS
        CF.RESERVE a 1000 BUCKETSIZE x => -Couldn't parse BUCKETSIZE
        CF.RESERVE a 1000 EXPANSION x => -Couldn't parse EXPANSION
        CF.RESERVE a 1000 MAXITERATIONS 0 => -MAXITERATIONS: value must be in the range [1, 65535]
        CF.RESERVE a 1000 MAXITERATIONS 65536 => \
            -MAXITERATIONS: value must be in the range [1, 65535]
        CF.RESERVE a 1000 BUCKETSIZE 0 => -BUCKETSIZE: value must be in the range [1, 255]
        CF.RESERVE a 1000 BUCKETSIZE 256 => -BUCKETSIZE: value must be in the range [1, 255]
        CF.RESERVE a 1000 EXPANSION -1 => -EXPANSION: value must be in the range [0, 32768]
        CF.RESERVE a 1000 EXPANSION 32769 => -EXPANSION: value must be in the range [0, 32768]
        CF.RESERVE a 3 => -Capacity must be in the range [2 * BUCKETSIZE, 1073741824]
        CF.RESERVE a 7 BUCKETSIZE 4 => -Capacity must be in the range [2 * BUCKETSIZE, 1073741824]
        CF.RESERVE a 1073741825 => -Capacity must be in the range [2 * BUCKETSIZE, 1073741824]
        CF.RESERVE a -1 => -Capacity must be in the range [2 * BUCKETSIZE, 1073741824]
        EXISTS a => :0
        """,
    "adding and asking": """
        CF.ADD a x => :1 | #t
        CF.ADD a x => :1 | #t
        CF.COUNT a x => :2
        CF.ADDNX a x => :0 | #f
        CF.ADDNX a y => :1 | #t
        CF.ADDNX new y => :1 | #t
        CF.EXISTS a x => :1 | #t
        CF.EXISTS a z => :0 | #f
        CF.MEXISTS a x z y => [:1, :0, :1] | [#t, #f, #t]
        CF.COUNT a z => :0
        cf.exists a x => :1 | #t
        CF.EXISTS missing x => :0 | #f
        CF.MEXISTS missing x y => [:0, :0] | [#f, #f]
        CF.COUNT missing x => :0
        CF.INFO missing => -ERR not found
        CF.DEBUG missing => -ERR not found
        CF.DEBUG a => \
            "bktsize:2 buckets:512 items:3 deletes:0 filters:1 max_iterations:20 expansion:1"
        """,
    "removing": """
        CF.ADD a x => :1 | #t
        CF.ADD a x => :1 | #t
        CF.DEL a x => :1 | #t
        CF.EXISTS a x => :1 | #t
        CF.DEL a x => :1 | #t
        CF.EXISTS a x => :0 | #f
        CF.DEL a x => :0 | #f
        CF.DEL missing x => -Not found
        CF.DEBUG a => \
            "bktsize:2 buckets:512 items:0 deletes:2 filters:1 max_iterations:20 expansion:1"
        CF.COMPACT a => +OK
        CF.COMPACT missing => -Cuckoo filter was not found
        """,
    "arity": """
        CF.ADD a => -ERR wrong number of arguments for 'cf.add' command
        CF.ADD a x y => -ERR wrong number of arguments for 'cf.add' command
        CF.ADDNX a => -ERR wrong number of arguments for 'cf.addnx' command
        CF.EXISTS a => -ERR wrong number of arguments for 'cf.exists' command
        CF.MEXISTS a => -ERR wrong number of arguments for 'cf.mexists' command
        CF.COUNT a => -ERR wrong number of arguments for 'cf.count' command
        CF.DEL a => -ERR wrong number of arguments for 'cf.del' command
        CF.INFO => -ERR wrong number of arguments for 'cf.info' command
        CF.INFO a b => -ERR wrong number of arguments for 'cf.info' command
        CF.COMPACT => -ERR wrong number of arguments for 'cf.compact' command
        CF.DEBUG => -ERR wrong number of arguments for 'cf.debug' command
        DBSIZE => :0
        """,
    "inserting": """
        CF.INSERT a ITEMS x y x => [:1, :1, :1] | [#t, #t, #t]
        CF.INSERTNX a ITEMS x y z => [:0, :0, :1]
        CF.INSERT b CAPACITY 1000 ITEMS x => [:1] | [#t]
        CF.INSERT b NOCREATE ITEMS y => [:1] | [#t]
        CF.INSERTNX b NOCREATE ITEMS y => [:0]
        CF.INSERT c CAPACITY 2000 NOCREATE ITEMS y => -ERR not found
        CF.INSERTNX c CAPACITY 2000 ITEMS y => [:1]
        CF.DEBUG c => \
            "bktsize:2 buckets:1024 items:1 deletes:0 filters:1 max_iterations:20 expansion:1"
        CF.COUNT a x => :2
        """,
    "inserting wrongly": """
        CF.INSERT a => -ERR wrong number of arguments for 'cf.insert' command
        CF.INSERT a ITEMS => -ERR wrong number of arguments for 'cf.insert' command
        CF.INSERTNX a ITEMS => -ERR wrong number of arguments for 'cf.insertnx' command
        CF.INSERTNX a CAPACITY 100 => -ERR wrong number of arguments for 'cf.insertnx' command
        CF.INSERT a CAPACITY x ITEMS x => -Bad capacity
        CF.INSERT a CAPACITY 3 ITEMS x => \
            -Capacity must be in the range [cf-bucket-size * 2, 1073741824]
        CF.INSERT a CAPACITY 1073741825 ITEMS x => \
            -Capacity must be in the range [cf-bucket-size * 2, 1073741824]
        CF.INSERT a CAPACTY 8 ITEMS x => \
            -Unknown argument received: 'CAPACTY', did you mean CAPACITY?
        CF.RESERVE a 1000 BUCKETSIZ 4 => \
            -Unknown argument received: 'BUCKETSIZ', did you mean BUCKETSIZE?
        CF.RESERVE a 1000 EXPANSION 1 EXPANSION 2 => -ERR EXPANSION comes twice
        CF.INSERTNX a NOCREATE ITEMS x => -ERR not found
        EXISTS a => :0
        """,
    "a filter that is full": """
        CF.RESERVE full 4 BUCKETSIZE 2 EXPANSION 0 => +OK
        CF.INSERT full ITEMS x x x x x => [:1, :1, :1, :1, :-1] | [#t, #t, #t, #t, #f]
        CF.INSERTNX full ITEMS x q => [:0, :-1]
        CF.ADD full x => -Filter is full
        CF.ADDNX full x => :0 | #f
        CF.ADDNX full q => -Filter is full
        CF.COUNT full x => :4
        """,
    "as many expansions as may be": """
        CONFIG SET cf-max-expansions 2 => +OK
        CF.RESERVE two 4 BUCKETSIZE 2 EXPANSION 1 => +OK
        CF.INSERT two ITEMS x x x x x x x x => [:1, :1, :1, :1, :1, :1, :1, :1] | \
            [#t, #t, #t, #t, #t, #t, #t, #t]
        CF.ADD two x => -Maximum expansions reached
        CONFIG SET cf-max-expansions 32 => +OK
        """,
    "another type": """
        BF.ADD bloom x => :1 | #t
        CF.RESERVE bloom 1000 => -WRONGTYPE
        CF.ADD bloom x => -WRONGTYPE
        CF.ADDNX bloom x => -WRONGTYPE
        CF.INSERT bloom ITEMS x => -WRONGTYPE
        CF.INSERTNX bloom ITEMS x => -WRONGTYPE
        CF.INFO bloom => -WRONGTYPE
        CF.DEBUG bloom => -WRONGTYPE
        CF.SCANDUMP bloom 0 => -WRONGTYPE
        CF.LOADCHUNK bloom 1 x => -WRONGTYPE
        # RedisBloom says 0 to these, Not found and Cuckoo filter was not found: x is in it.
        CF.EXISTS bloom x => -WRONGTYPE
        CF.MEXISTS bloom x => -WRONGTYPE
        CF.COUNT bloom x => -WRONGTYPE
        CF.DEL bloom x => -WRONGTYPE
        CF.COMPACT bloom => -WRONGTYPE
        """,
    "dumping and loading wrongly": """
        CF.RESERVE a 1000 => +OK
        CF.SCANDUMP a x => -Invalid position
        CF.SCANDUMP a -1 => -Invalid position
        CF.SCANDUMP missing x => -Invalid position
        CF.SCANDUMP missing 0 => -ERR not found
        # An empty filter is at its end at once.
        CF.SCANDUMP a 0 => [:0, nil] | [:0, null]
        CF.ADD a x => :1 | #t
        CF.SCANDUMP a 99999 => [:0, nil] | [:0, null]
        CF.LOADCHUNK a 0 data => -Invalid position
        CF.LOADCHUNK a x data => -Invalid position
        CF.LOADCHUNK a 1 data => -ERR item exists
        CF.LOADCHUNK missing 1 data => -Invalid header
        CF.LOADCHUNK missing 1 00000000000000000000000000000000000000 => -Couldn't create filter!
        CF.LOADCHUNK missing 2 data => -ERR not found
        CF.LOADCHUNK a 99999 data => -Couldn't load chunk!
        CF.LOADCHUNK a -5 data => -Couldn't load chunk!
        CF.LOADCHUNK missing -5 data => -ERR not found
        EXISTS missing => :0
        """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_replies_are_those_of_redisbloom(empty: BloomeryServer, protocol: int, script: str) -> None:
    """Whatever is asked with CF.*, right or wrong, the reply is RedisBloom's."""
    with Wire(empty.resp_port, protocol) as wire:
        check(wire, protocol, script)


def test_a_filter_is_dumped_and_loaded(empty: BloomeryServer, protocol: int) -> None:
    """What SCANDUMP gives, LOADCHUNK takes: the copy has every key as often as the first."""
    keys = [f"key {number}" for number in range(3000)]
    with Wire(empty.resp_port, protocol) as wire:
        assert wire.ask("CF.RESERVE", "a", 500, "EXPANSION", 2) == b"+OK\r\n"
        wire.ask("CF.INSERT", "a", "ITEMS", *keys, *keys[:100])
        chunks = dump(wire, "CF.SCANDUMP", "a")
        for iterator, data in chunks:
            assert wire.ask("CF.LOADCHUNK", "b", iterator, data) == b"+OK\r\n"
        assert dump(wire, "CF.SCANDUMP", "b") == chunks
        asked = [f"other {number}" for number in range(3000)] + keys
        assert wire.ask("CF.MEXISTS", "b", *asked) == wire.ask("CF.MEXISTS", "a", *asked)
        for key in keys[90:110]:
            assert wire.ask("CF.COUNT", "b", key) == wire.ask("CF.COUNT", "a", key)
        for command in ("CF.INFO", "CF.DEBUG"):
            assert wire.ask(command, "b") == wire.ask(command, "a")
