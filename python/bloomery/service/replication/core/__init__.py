"""The core of the shared log: what a node does to follow, write and repair it, without any I/O.

A node is a server whose log is a Redis stream instead of a file. All nodes append their operations
to one stream and apply it in its order, so their copies are equal. This package decides what to
send and when to reply. `replication/node.py` has the sockets, threads, clocks and files.

    event ──> ReplicationCore.step(event, now) ──> actions        (`messages` has all of both)

**Four rules make it safe.** docs/decisions/0041-shared-log.md argues each, fault by fault.

1. *Log matching.* Each send of an entry has a number that is never used again. So if two streams
   have the same entry (that number) at the same position, they are equal up to there. A `Mark` is
   such a pair. Every read begins with the entry that this node applied last and every append names
   it: Redis refuses both if the stream has not got it. No node ever reads or writes on top of a
   history that is not its own (`history`).
2. *A reply is decided by the log.* A write is answered when its entry has been applied here, by
   what it changed then. A retry has the same operation number and is applied once (`ledger`). So of
   all that add a key, one is told that it is new. A write that would change nothing rides along
   with the next entry of its node, and is looked at where that is in the log.
3. *One notion of age.* The copy is as recent as the moment at which the last read was **sent** that
   was answered up to the stream's end and applied. `local` reads want that to be no longer ago than
   a bound; `strong` reads want it to be after they came.
4. *Lost history is put back as it was.* If the stream ends before this node's place (a failover),
   the missing entries are appended again, byte for byte at their old positions, provided that
   nothing else came there. Else the node compares the log with its copy (`comparison`). It loads
   the snapshot, follows, and repeats the lost writes that only add (`node`, `writes`); or replaces
   the log by its copy; or waits for an operator.

Time is the stream's: an entry's position begins with Redis's clock. Who holds the lease lets time
pass (CLOCK), takes decisions for all (DECIDE) and makes snapshots (`snapshots`). The lease is in
the log too: a claim names the one it replaces, and its position is the fencing number.

The walk of an add: `node.ReplicationCore._write` queues it, `_send` appends it, `_appended` applies
what came before it and then itself (`_apply`), `_acknowledge` replies.
"""
