"""Filters so small that a person sees all of their bits, for the playground's page.

    steps (add, remove), a key to ask ──tiny──────> four real filters: their cells, their answers
    a key to read ─────────────────────sstables───> a read through three tables, with a filter each

Nothing is kept: a request has all steps, and the filters are made of them anew by the library that
serves real ones. A classic filter may have ten bits. The other kinds have lines of 512 bits, so one
line is the least that there is of them, and is shown whole.
"""
