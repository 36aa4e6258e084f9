"""Pages for people: filters, planner, playground, nodes and health, and the API, in a browser.

    frame (who looks, layout) ─> templates/*.html ─> static/*.js, bloomery.css (assets)
    pages ──────────────────────────────────────────────────────────┐
    data for them: the API's own routes, and JSON below /ui/data/ <─┘ (fetch)

The server writes the frame and the words; small ES modules fetch the figures and draw them. There
is no build step and nothing is loaded from elsewhere. The Content-Security-Policy (`origin`) allows
no script and no style in the text, and no text that becomes markup: a module makes elements.

A page is a function under `@frame.page(...)`; it needs a template that extends `layout.html` and,
if it moves, a module in `static/`. What it fetches is a route as those of `endpoints/` are.
"""
