"""The Redis protocol: commands and replies, translated to and from `service/commands.py`.

    server ─> connection ─> dispatch ─> handlers, transactions ─> invoke ─> table ─> client

Imports point one way, along the arrows. A client and the server it is of (`service/parts.py`) is
what a handler is given. The bytes that come in go to native code first
(`_native.Session`), which does the usual commands of filters; the others come to `dispatch`, and
each handler stands once in the `table`. The numbers that bound a request are in `limits`.
"""
