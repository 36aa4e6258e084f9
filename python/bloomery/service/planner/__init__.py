"""What the planner's page says: which kind, how large, what it costs, and how to make it.

    questions ──choice──> kind, error rate      any of capacity, rate, memory, hashes ──┐
                                                                                        v
    curves, other kinds, cost, nodes, what else people use (measured) <──plans── bloomery.sizing
    Python, command, HTTP, Redis that make exactly this filter        <──creation──┘

Every number is `bloomery.sizing`'s, or was measured by a benchmark; the page computes none.
"""
