"""Filters so small that a person sees all of their bits, for the playground's page.

    steps (add, remove), a key to ask ──tiny──> four real filters: each cell, each key's cells, answers
                                     ──sstables──> a read through three tables, each with a filter

Nothing is kept: a request has all steps, and the filters are made of them anew by the library that
serves real ones. A classic filter may have ten bits. The other kinds have lines of 512 bits, so one
line is the least that there is of them, and is shown whole.
"""
