"""The Redis protocol: commands and replies, translated to and from `service/commands.py`.

    server ─> dispatch ─> handlers, transactions ─> invoke ─> table ─> client

Imports point one way, along the arrows. Native workers (`_native.Workers`) own the connections and
run the fast-path commands. `server` gets all other commands as events and passes them to
`dispatch`. A handler gets the client and its server (`service/parts.py`), and is in the `table`
once. The limits of a request are in `limits`.
"""
