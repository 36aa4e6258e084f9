"""HTTP: JSON, described by OpenAPI, translated to and from `service/commands.py`.

    server ─> app ─> endpoints ─> route, body ─> login, validation, models ─> problems
      └─> connection ─> request_cycle ─> uvicorn_internals

Imports point one way, along the arrows. The connection keeps time and size of requests in bounds;
the numbers are in `limits`. `origin` refuses requests that a web page of another site may have sent
(CSRF, DNS rebinding), `smuggling` those that a proxy may have understood differently.
"""
