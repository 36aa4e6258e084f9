"""What the server tells about itself, its settings, its commands and its clients."""

import time

import pytest

from integration.resp.wire import Wire, check, facts, request, shown, told
from integration.servers import BloomeryServer, wait_until


def test_hello_tells_who_answers(empty: BloomeryServer) -> None:
    """HELLO chooses the protocol from its own reply on, and names the module that clients need."""
    with Wire(empty.resp_port) as wire:
        two = shown(wire.ask("HELLO"))
        assert two[:6] == ["$server", "$redis", "$version", "$7.4.0", "$proto", ":2"]
        three = shown(wire.ask("HELLO", 3, "AUTH", "default", "any", "SETNAME", "me"))
        assert three["$proto"] == ":3"
        assert three["$mode"] == "$standalone"
        assert three["$role"] == "$master"
        assert three["$modules"][0]["$name"] == "$bf"
        assert told(wire.ask("CLIENT", "ID")) == three["$id"]
        assert told(wire.ask("CLIENT", "GETNAME")) == '"me"'
        assert told(wire.ask("BF.ADD", "a", "x")) == "#t"
        assert isinstance(shown(wire.ask("HELLO", 2)), list)
        assert told(wire.ask("BF.EXISTS", "a", "x")) == ":1"
        wire.ask("HELLO", 3)
        assert told(wire.ask("RESET")) == "+RESET"
        assert told(wire.ask("BF.EXISTS", "a", "x")) == ":1"
        assert told(wire.ask("CLIENT", "GETNAME")) == "nil"


def test_info_has_sections(empty: BloomeryServer, protocol: int) -> None:
    """INFO tells all of it, or the sections asked for; in RESP3 as text."""
    with Wire(empty.resp_port, protocol) as wire:
        wire.ask("BF.ADD", "a", "x")
        wire.ask("EXPIRE", "a", 1000)
        wire.ask("CF.ADD", "b", "x")
        assert wire.ask("INFO")[:1] == (b"$" if protocol == 2 else b"=")
        everything = facts(wire)
        assert everything.keys() == facts(wire, "all").keys() == facts(wire, "default").keys()
        assert everything.keys() < facts(wire, "everything").keys()
        assert everything["redis_version"] == "7.4.0"
        assert everything["process_id"] == str(empty.pid)
        assert everything["tcp_port"] == str(empty.resp_port)
        assert everything["db0"] == "keys=2,expires=1,avg_ttl=0"
        assert int(everything["used_memory"]) > 0
        assert int(everything["used_memory_rss"]) > 1 << 20
        assert everything["aof_last_write_status"] == "ok"
        assert facts(wire, "keyspace").keys() == {"db0"}
        assert facts(wire, "CLIENTS", "memory").keys() >= {"connected_clients", "maxmemory"}
        assert facts(wire, "nosuch") == {}


@pytest.mark.parametrize("_flushed", ["alone"], indirect=True)
def test_info_has_a_section_of_our_own(empty: BloomeryServer) -> None:
    """The section `bloomery` tells of filters, log, snapshots, recovery and registry."""
    with Wire(empty.resp_port) as wire:
        before = facts(wire, "bloomery")
        wire.send(request("BF.ADD", "a", "x") * 100)
        for _ in range(100):
            wire.reply()
        after = facts(wire, "bloomery")
        assert (before["filters"], after["filters"]) == ("0", "1")
        assert int(after["filters_memory"]) > int(before["filters_memory"])
        assert int(after["native_commands"]) - int(before["native_commands"]) >= 99
        assert int(after["python_commands"]) > int(before["python_commands"])
        assert after["refusing_writes"] == "0"
        assert after["recovery_problems"] == "0"
        assert int(after["log_bytes"]) > 0
        wait_until(lambda: facts(wire, "bloomery")["registry"] == "ok")
        assert facts(wire, "bloomery")["registry"] == "ok"


RANGES = {
    "bf-error-rate": ["0", "1", "-1", "x", "nan", ""],
    "bf-initial-size": ["0", "1073741825", "x", "1.5"],
    "bf-expansion-factor": ["-1", "32769", "x"],
    "cf-bucket-size": ["0", "256", "x"],
    "cf-initial-size": ["0", "1", "3", "1073741825", "x"],
    "cf-max-iterations": ["0", "65536", "x"],
    "cf-expansion-factor": ["-1", "32769", "x"],
    "cf-max-expansions": ["0", "65537", "x"],
}


@pytest.mark.parametrize("name", RANGES)
def test_settings_out_of_range_are_refused(empty: BloomeryServer, name: str) -> None:
    """CONFIG SET says what the range is, and changes nothing, not even what was right beside it."""
    with Wire(empty.resp_port) as wire:
        before = wire.ask("CONFIG", "GET", "*")
        for value in RANGES[name]:
            reply = told(wire.ask("CONFIG", "SET", "timeout", 77, name, value))
            assert reply.startswith("-ERR CONFIG SET failed (possibly related to argument"), reply
            assert f"'{name}'" in reply
            assert "must be in the range" in reply
        assert wire.ask("CONFIG", "GET", "*") == before


DEFAULTS = """
    CONFIG SET bf-initial-size 500 bf-expansion-factor 4 bf-error-rate 0.9 => +OK
    CONFIG GET bf-error-rate => ["bf-error-rate", "0.25"]
    BF.ADD a x => :1
    BF.INFO a CAPACITY => [:500]
    BF.INFO a EXPANSION => [:4]
    CONFIG SET bf-initial-size 100 bf-expansion-factor 2 bf-error-rate 0.01 => +OK
    CONFIG SET cf-bucket-size 4 cf-initial-size 4096 => +OK
    CONFIG SET cf-max-iterations 7 cf-expansion-factor 2 => +OK
    CF.ADD b x => :1
    CF.DEBUG b => \
        "bktsize:4 buckets:1024 items:1 deletes:0 filters:1 max_iterations:7 expansion:2"
    CONFIG SET cf-bucket-size 2 cf-initial-size 1024 => +OK
    CONFIG SET cf-max-iterations 20 cf-expansion-factor 1 => +OK
    """


def test_settings_are_the_defaults_of_new_filters(empty: BloomeryServer) -> None:
    """What CONFIG SET gave is what BF.ADD and CF.ADD make a filter with."""
    with Wire(empty.resp_port) as wire:
        check(wire, 2, DEFAULTS)


def test_memory_has_a_limit(empty: BloomeryServer) -> None:
    """Beyond maxmemory no filter is made, those that are there go on, and more can be allowed."""
    with Wire(empty.resp_port) as wire:
        assert told(wire.ask("BF.ADD", "a", "x")) == ":1"
        assert told(wire.ask("CONFIG", "SET", "maxmemory", "256kb")) == "+OK"
        large = ("BF.RESERVE", "large", "0.01", 10_000_000)
        assert told(wire.ask(*large)) == "-ERR Insufficient memory to create filter"
        assert told(wire.ask("EXISTS", "large")) == ":0"
        assert told(wire.ask("BF.EXISTS", "a", "x")) == ":1"
        assert facts(wire, "bloomery")["filters_memory_budget"] == str(256 << 10)
        full, replies = "-ERR problem inserting into filter", list[str]()
        while full not in replies:
            start = len(replies)
            replies += shown(wire.ask("BF.MADD", "a", *range(start, start + 10_000)))
        told_to_be_in = [key for key, reply in enumerate(replies) if reply != full]
        assert wire.ask("BF.MEXISTS", "a", *told_to_be_in).count(b":1") == len(told_to_be_in)
        assert told(wire.ask("CONFIG", "SET", "maxmemory", "100mb")) == "+OK"
        assert told(wire.ask(*large)) == "+OK"


@pytest.mark.parametrize("_flushed", ["alone"], indirect=True)
def test_snapshots_when_asked(empty: BloomeryServer) -> None:
    """BGSAVE begins one, is refused while it runs, and LASTSAVE tells of it; SAVE waits, and others
    are served meanwhile."""
    with Wire(empty.resp_port) as wire, Wire(empty.resp_port) as other:
        wire.ask("BF.ADD", "a", "x")
        assert wait_until(lambda: facts(wire)["rdb_bgsave_in_progress"] == "0", 200)
        wire.send(request("BGSAVE") * 2 + request("SAVE"))
        assert told(wire.reply()) == "+Background saving started"
        assert told(wire.reply()) == "-ERR Background save already in progress"
        assert told(wire.reply()) == "-ERR Background save already in progress"
        assert wait_until(lambda: facts(wire)["rdb_bgsave_in_progress"] == "0", 200)
        assert abs(int(told(wire.ask("LASTSAVE"))[1:]) - time.time()) < 60
        generation = facts(wire)["last_snapshot"]
        wire.send(request("SAVE"))
        assert told(other.ask("BF.EXISTS", "a", "x")) == ":1"
        assert told(wire.reply()) == "+OK"
        assert int(facts(wire)["last_snapshot"]) > int(generation)
        assert facts(wire)["rdb_last_bgsave_status"] == "ok"


def test_commands_describe_themselves(empty: BloomeryServer, protocol: int) -> None:
    """Every command tells what it does, and its arity is the one it keeps to."""
    with Wire(empty.resp_port, protocol) as wire:
        described = shown(wire.ask("COMMAND"))
        assert told(wire.ask("COMMAND", "COUNT")) == f":{len(described)}"
        documented = shown(wire.ask("COMMAND", "DOCS"))
        if protocol == 2:
            documented = dict(zip(documented[::2], documented[1::2], strict=True))
        listed = shown(wire.ask("COMMAND", "LIST"))
        names = [one[0] for one in described]
        assert sorted(names) == sorted(listed) == sorted(documented)
        assert {"$bf.add", "$cf.add", "$exec", "$config", "$scan"} <= set(names)
        for name, arity, *_ in described:
            word, least = name[1:], abs(int(arity[1:]))
            assert "$summary" in documented[name], name
            if least > 1:
                refused = told(wire.ask(word, *["x"] * (least - 2)))
                assert refused == f"-ERR wrong number of arguments for '{word}' command"
            if not arity.startswith(":-"):
                refused = told(wire.ask(word, *["x"] * least))
                assert refused == f"-ERR wrong number of arguments for '{word}' command"
        for container in ("CLIENT", "CONFIG", "COMMAND", "MEMORY", "OBJECT"):
            assert len(shown(wire.ask(container, "HELP"))) > 2
        only = shown(wire.ask("COMMAND", "LIST", "FILTERBY", "ACLCAT", "cuckoo"))
        assert {name[:4] for name in only} == {"$cf."}


def test_clients_are_listed_and_closed(empty: BloomeryServer) -> None:
    """CLIENT LIST shows who is there, and CLIENT KILL closes them by number or address."""
    wires = [Wire(empty.resp_port) for _ in range(4)]
    first, second, third, fourth = wires
    try:
        for number, wire in enumerate(wires):
            assert told(wire.ask("CLIENT", "SETNAME", f"client-{number}")) == "+OK"
        assert told(second.ask("CLIENT", "SETINFO", "LIB-NAME", "test")) == "+OK"
        assert told(second.ask("CLIENT", "SETINFO", "lib-ver", "1.2")) == "+OK"
        assert told(second.ask("CLIENT", "SETINFO", "foo", "1.2")).startswith("-ERR Unrecognized")
        assert told(third.ask("MULTI")) == "+OK"
        numbers = [told(wire.ask("CLIENT", "ID"))[1:] for wire in (first, second, fourth)]
        lines = shown(first.ask("CLIENT", "LIST"))[1:].splitlines()
        listed = [dict(word.split("=", 1) for word in line.split(" ")) for line in lines]
        by_name = {one["name"]: one for one in listed}
        assert by_name["client-1"]["lib-name"] == "test"
        assert by_name["client-1"]["lib-ver"] == "1.2"
        assert by_name["client-2"]["flags"] == "x"
        assert by_name["client-0"]["cmd"] == "client|list"
        only = shown(first.ask("CLIENT", "LIST", "ID", numbers[1]))
        assert only.count("id=") == 1
        assert told(first.ask("CLIENT", "KILL", "ID", numbers[1])) == ":1"
        assert second.closed()
        assert told(first.ask("CLIENT", "KILL", by_name["client-2"]["addr"])) == "+OK"
        assert third.closed()
        assert told(first.ask("CLIENT", "KILL", "ID", numbers[0])) == ":0"  # SKIPME is yes
        assert told(fourth.ask("CLIENT", "KILL", "ID", numbers[2], "SKIPME", "no")) == ":1"
        assert fourth.reply() == b""
        assert told(first.ask("PING")) == "+PONG"
        assert told(first.ask("QUIT")) == "+OK"
        assert first.reply() == b""
    finally:
        for wire in wires:
            wire.close()


def test_many_clients_are_listed_and_closed(empty: BloomeryServer) -> None:
    """With many clients, which the server goes through in slices, the replies are the same."""
    wires = [Wire(empty.resp_port) for _ in range(200)]
    first, second, third, *_ = wires
    try:
        numbers = [told(wire.ask("CLIENT", "ID"))[1:] for wire in wires]
        lines = shown(first.ask("CLIENT", "LIST"))[1:].splitlines()
        listed = [dict(word.split("=", 1) for word in line.split(" ")) for line in lines]
        assert set(numbers) <= {one["id"] for one in listed}
        by_number = {one["id"]: one for one in listed}
        chosen = numbers[50:150]
        only = shown(first.ask("CLIENT", "LIST", "ID", *chosen, "999999999"))[1:].splitlines()
        assert [line.split()[0] for line in only] == [f"id={number}" for number in chosen]
        assert shown(first.ask("CLIENT", "LIST", "TYPE", "normal")).count("\n") >= len(wires)
        assert told(first.ask("CLIENT", "KILL", by_number[numbers[1]]["addr"])) == "+OK"
        assert second.closed()
        assert told(first.ask("CLIENT", "KILL", "1.2.3.4:5")) == "-ERR No such client"
        assert told(first.ask("CLIENT", "KILL", "ID", numbers[0])) == ":0"
        assert told(third.ask("CLIENT", "KILL", "ID", numbers[2], "SKIPME", "no")) == ":1"
        assert third.reply() == b""
        assert told(first.ask("MULTI")) == "+OK"
        assert told(first.ask("CLIENT", "LIST")) == "+QUEUED"
        assert told(first.ask("CLIENT", "KILL", "ID", numbers[3])) == "+QUEUED"
        replies = first.ask("EXEC")
        assert replies.count(b" laddr=") >= len(wires) - 2
        assert replies.endswith(b":1\r\n")
        assert told(first.ask("PING")) == "+PONG"
    finally:
        for wire in wires:
            wire.close()
