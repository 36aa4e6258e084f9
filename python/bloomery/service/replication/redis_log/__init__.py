"""The shared log in Redis: what the actions of `core` are there.

    {prefix}:log            a stream; each entry has one field, the bytes of a `LogEntry`
    {prefix}:last           position and tag of the last entry, so that an append need not read it
    {prefix}:manifest       which snapshots are good
    {prefix}:chunk:ID       what a snapshot consists of; written last
    {prefix}:chunk:ID:0, …  its bytes

All have one hash tag, so in a cluster they are at one node. Each step is one script (`scripts`),
which Redis does as a whole and replicates as a whole. `log.RedisLog` performs the actions of the
core on an event loop, by connections that never send anything twice (`link`). Snapshots are read
and written by plain functions (`chunks`), for a thread or a process that was forked.
"""
