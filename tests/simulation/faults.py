"""What goes wrong in a simulation, how often, and the options of its nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bloomery.service.replication.core.node import Options

OPTIONS = Options(
    max_lag=1.0,
    write_timeout=1.2,
    retry=0.05,
    snapshot_retry=0.05,
    settle=0.15,
    retain=1000.0,
    hello=1.0,
    lease=1.0,
    clock=0.4,
    bootstrap=8.0,
    claim=1.0,
    snapshot_entries=12,
    history_entries=200,
    check=1e9,
    load_pause=0.8,
)


@dataclass(frozen=True)
class Faults:
    """How often each fault happens, in a second."""

    crash: float = 0.1  # of a node
    pause: float = 0.15
    cut: float = 0.15
    failover: float = 0.4
    split: float = 0.3  # the share of failovers after which the old server still serves some
    empty: float = 0.06
    stall: float = 0.4  # of replication
    damage: float = 0.2  # of a snapshot's chunks
    lost: float = 0.02  # of a message, by chance
    late: float = 0.02  # a request arrives long after its sender has given up
    clock_jump: float = 0.2
    hours: float = 0.0  # the clock of Redis, or of a node's machine, jumps by hours
    clear: float = 0.04  # the share of requests that clear a filter
    full: float = 0.0  # the share of appends that a full Redis refuses
    rewind: float = 0.0  # Redis falls back to any earlier state, as a replica that lags for hours
    stray: float = 0.0  # a node is pointed at the Redis of another cluster for a while
    slow_copies: float = 0.0  # seconds that a snapshot takes to be saved or loaded, at most
    foreign: float = 0.0  # another program adds entries to the stream
    lose: float = 0.0  # of chunks, the manifest, or a part of the stream
    huge: float = 0.0  # the share of requests that make what one node has no memory for
    numbered: float = 0.0  # the share of requests that are about filters with numbers


# What may go wrong, by what it is about; the last one also needs `SOON_FORGOTTEN`.
OFTEN_LOST = Faults(failover=1.5, stall=1.5, crash=0.02)
OFTEN_SPLIT = Faults(failover=1.2, split=1.0, stall=1.0, crash=0.02)
OFTEN_CLEARED = replace(OFTEN_LOST, clear=0.1)
OFTEN_CUT = Faults(cut=1.0, lost=0.1, late=0.1)
OFTEN_PAUSED = Faults(pause=1.0)
OFTEN_FULL = Faults(full=0.3, late=0.1, lost=0.1)
OFTEN_DAMAGED = Faults(damage=2.0, crash=0.3)
OFTEN_EMPTY = Faults(0.4, pause=0, cut=0, failover=0, empty=0.5, damage=0, lost=0, late=0)
OFTEN_REWOUND = Faults(rewind=0.7, failover=0.2, crash=0.05, pause=0.05, cut=0.05)
OFTEN_STRAY = Faults(stray=1.0, failover=0.2, empty=0.0, crash=0.05)
# A copy takes longer than every timeout, also longer than a new node waits at an empty Redis.
SLOW = replace(OFTEN_EMPTY, crash=0.2, empty=0.4, slow_copies=4.0)
HASTY = replace(OPTIONS, bootstrap=1.0, claim=0.5, retain=0.2, history_entries=5)
# Redis loses more than the nodes keep entries of.
SHORT_OF_HISTORY = replace(OPTIONS, history_entries=5, retain=0.2)
OFTEN_FOREIGN = Faults(foreign=4.0, failover=0.8, crash=0.3)
OFTEN_INCOMPLETE = Faults(0, pause=1.0, cut=0.3, failover=0, empty=0, damage=0, lose=2.0)
OFTEN_HOURS = Faults(hours=3.0)
OFTEN_HUGE = Faults(huge=0.03)
# Filters with numbers: renamed, copied, dropped, restored, merged.
NUMBERED = Faults(numbered=0.8, failover=0, empty=0, late=0.05)
NUMBERED_LOST = replace(OFTEN_LOST, numbered=0.8)
NUMBERED_REWOUND = replace(OFTEN_REWOUND, numbered=0.8)
# Nodes know what they acknowledged for so short a time that they cannot repeat all of it.
# Nobody waits for others to put entries back: nodes have to load again more often.
UNSETTLED = replace(OPTIONS, settle=0.0, snapshot_entries=6)
CHECKED = replace(OPTIONS, check=0.5, load_pause=2.0)
SOON_FORGOTTEN = replace(OPTIONS, retain=0.2)
