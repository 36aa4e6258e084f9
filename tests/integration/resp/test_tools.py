"""Programs that speak the protocol and know nothing of us: redis-cli, redis-benchmark, Perl."""

import shutil
import subprocess

import pytest

from conftest import missing
from integration.servers import BloomeryServer


def run(*command: str, text: str = "") -> str:
    """What a program prints; it must end well."""
    if shutil.which(command[0]) is None:
        missing(f"{command[0]} (scripts/servers installs it)")
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_redis_cli(empty: BloomeryServer, protocol: int) -> None:
    """redis-cli does what a person types, one command or a file of them."""
    cli = ("redis-cli", "-p", str(empty.resp_port), f"-{protocol}")
    assert run(*cli, "BF.ADD", "a", "x").strip() == ("1" if protocol == 2 else "(true)")
    lines = "BF.MADD a y z\nBF.CARD a\nBF.RESERVE a 0.1 10\nMULTI\nBF.CARD a\nEXEC\n"
    printed = run(*cli, text=lines)
    assert "3" in printed.split()
    assert "ERR item exists" in printed
    assert run(*cli, "--scan").split() == ["a"]
    assert "bloomery_version" in run(*cli, "INFO")


def test_redis_cli_takes_a_pipe(empty: BloomeryServer) -> None:
    """`redis-cli --pipe` loads ten thousand keys, and all of them are there."""
    lines = "".join(f"BF.ADD a {number}\r\n" for number in range(10_000))
    printed = run("redis-cli", "-p", str(empty.resp_port), "--pipe", text=lines)
    assert "errors: 0, replies: 10000" in printed
    card = run("redis-cli", "-p", str(empty.resp_port), "BF.CARD", "a")
    assert 9_900 <= int(card) <= 10_000


@pytest.mark.parametrize("pipeline", ["1", "64"])
def test_redis_benchmark(empty: BloomeryServer, pipeline: str) -> None:
    """redis-benchmark runs to its end."""
    tool = ("redis-benchmark", "-p", str(empty.resp_port), "-q", "-n", "1000", "-P", pipeline)
    for words in (["PING"], ["BF.ADD", "a", "key:__rand_int__"], ["BF.EXISTS", "a", "key"]):
        printed = run(*tool, "-r", "100000", *words)
        assert "requests per second" in printed
        assert "rror" not in printed


PERL = r"""
use strict; use warnings; use Redis;
my $redis = Redis->new(server => "127.0.0.1:$ARGV[0]", name => 'perl');
print join(' ', $redis->ping, $redis->client_getname), "\n";
print $redis->__std_cmd('bf.reserve', 'a', '0.001', 1000), "\n";
print join(' ', $redis->__std_cmd('bf.madd', 'a', 'x', "\x00\xff", '', 'x')), "\n";
print join(' ', $redis->__std_cmd('bf.mexists', 'a', 'x', "\x00\xff", '', 'y')), "\n";
eval { $redis->__std_cmd('bf.reserve', 'a', '0.001', 1000) };
print $@ =~ /item exists/ ? "refused\n" : "no error: $@\n";
$redis->multi; $redis->__std_cmd('bf.add', 'a', 'z'); $redis->del('missing');
print join(' ', $redis->exec), "\n";
my $total = 0;
$redis->__std_cmd('bf.add', 'a', $_, sub { $total += $_[0] }) for 1 .. 500;
$redis->wait_all_responses;
print $total, "\n";
my $info = $redis->info; print $info->{redis_version}, "\n";
print join(' ', $redis->keys('*')), ' ', $redis->type('a'), "\n";
print $redis->expire('a', 100), ' ', $redis->ttl('a'), "\n";
$redis->quit;
"""


def test_perl(empty: BloomeryServer) -> None:
    """A client in another language works: names, keys of any bytes, errors, transactions."""
    if subprocess.run(["perl", "-MRedis", "-e1"], capture_output=True, check=False).returncode:
        missing("Perl's Redis (libredis-perl; scripts/servers installs it)")
    printed = run("perl", "-", str(empty.resp_port), text=PERL).splitlines()
    assert printed == [
        "PONG perl",
        "OK",
        "1 1 1 0",
        "1 1 1 0",
        "refused",
        "1 0",
        printed[6],
        "7.4.0",
        "a MBbloom--",
        "1 100",
    ]
    assert 495 <= int(printed[6]) <= 500
