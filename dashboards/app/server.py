"""The app as a web server on this machine: pages, downloads, headers that keep everything inside."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dash import Dash
from flask import Flask, Response, request

from dashboards.app import frame
from dashboards.app.campaigns import Campaigns
from dashboards.app.downloads import download
from dashboards.app.engine import Engine
from dashboards.app.page import Page
from dashboards.page import variables
from dashboards.problems import Unknown, sentence, tried
from dashboards.theme import dark_partners

_ASSETS: Final = Path(__file__).resolve().parent.parent / "assets" / "app"

HERE: Final = ("127.0.0.1", "localhost", "::1")
"""Names of this machine by which it asks itself."""

_INDEX: Final = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,"><title>ablate</title><style>{%variables%}</style>{%css%}</head>
<body>{%app_entry%}<noscript><p>The dashboard needs JavaScript; `ablate report` works without.</p></noscript>
<footer>{%config%}{%scripts%}{%renderer%}</footer></body></html>"""


def make_app(campaigns: Campaigns, pages: Sequence[Page]) -> Dash:
    """The app; nothing is served yet."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    app = Dash(
        "ablate",
        assets_folder=str(_ASSETS),
        title="ablate",
        update_title="",
        suppress_callback_exceptions=True,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
        add_log_handler=False,
    )
    app.index_string = _INDEX.replace("{%variables%}", variables(dark_partners([])))
    app.layout = frame.shell()
    engine = Engine(campaigns, pages)
    engine.attach(app)
    server: Flask = app.server
    server.route("/files/<campaign>/<page>/<name>.<end>")(_file(engine))
    policy = _policy(app)

    @server.after_request
    def headers(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response

    return app


def _policy(app: Dash) -> str:
    """No request leaves the machine; of inline scripts only those that Dash itself writes run."""
    hashes = " ".join(app.csp_hashes())
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; form-action 'none'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


def _file(engine: Engine) -> Callable[[str, str, str, str], Response]:
    def answer(campaign: str, page: str, name: str, end: str) -> Response:
        search = request.query_string.decode("utf-8", "replace")
        found, problem = tried(lambda: download(engine, campaign, page, name, end, search))
        if found is None:
            return Response(problem, status=404, mimetype="text/plain")
        return found

    return answer


def refuse_other_hosts(server: Flask, allowed: Sequence[str]) -> None:
    """Refuse requests under another host name: a web page elsewhere could point its own name at this machine."""

    @server.before_request
    def check() -> Response | None:
        host = request.host.rsplit(":", 1)[0].strip("[]").lower()
        if host in allowed:
            return None
        refused = Unknown(f"this dashboard answers to {', '.join(allowed)} and was asked for {host!r}")
        return Response(sentence(refused), status=403, mimetype="text/plain")
