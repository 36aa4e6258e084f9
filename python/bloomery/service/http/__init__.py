"""HTTP: JSON, described by OpenAPI, translated to and from `service/commands.py`.

    server ─> connection ─> request_cycle ─> problems          at the start, without FastAPI
       └─> health
    app ─> endpoints ─> route, body ─> login, validation, models ─> problems    once RESP answers

Imports point one way, along the arrows. The connection keeps time and size of requests in bounds;
the numbers are in `limits`. `origin` refuses requests that a web page of another site may have sent
(CSRF, DNS rebinding), `smuggling` those that a proxy may have understood differently.
"""
