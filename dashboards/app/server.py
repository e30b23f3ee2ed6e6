"""The app as a web server on this machine: pages, downloads, headers that keep everything inside."""

import ipaddress
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dash import Dash, set_props
from flask import Flask, Response, request

from dashboards.app import navigation
from dashboards.app.campaigns import Campaigns
from dashboards.app.downloads import IN_PAGE, download
from dashboards.app.engine import Engine
from dashboards.app.page import AppPage
from dashboards.data.user_errors import Unknown, catch_user_error, sentence
from dashboards.html.document import variables
from dashboards.html.markup import text
from dashboards.theme.styles import dark_partners
from grid.errors import AblateError
from grid.operator_view import OperatorCatalogue

_ASSETS: Final = Path(__file__).resolve().parent.parent / "assets" / "app"

_LOG: Final = logging.getLogger(__name__)

HERE: Final = ("127.0.0.1", "localhost", "::1")
"""Host names of this machine."""

_INDEX: Final = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,"><title>ablate</title><style>{%variables%}</style>{%css%}</head>
<body>{%app_entry%}<noscript><p>The dashboard needs JavaScript; `ablate report` works without.</p></noscript>
<footer>{%config%}{%scripts%}{%renderer%}</footer></body></html>"""


def make_app(campaigns: Campaigns, pages: Sequence[AppPage], maths: OperatorCatalogue | None = None) -> Dash:
    """The app; nothing is served yet."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    app = Dash(
        "ablate",
        assets_folder=str(_ASSETS),
        assets_url_path="files/app/assets",  # no campaign and page are called so
        title="ablate",
        update_title="",
        suppress_callback_exceptions=True,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
        add_log_handler=False,
        on_error=_report_error,
    )
    app.index_string = _INDEX.replace("{%variables%}", variables(dark_partners([])))
    app.layout = navigation.shell(pages)
    engine = Engine(campaigns, pages, maths)
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


def _report_error(error: Exception) -> None:
    """Show an error of a callback above the page, which stays as it is."""
    if isinstance(error, AblateError):
        set_props("problem", {"children": sentence(error)})
        return
    _LOG.error("the dashboard failed", exc_info=error)
    words = f"The dashboard failed ({type(error).__name__}): the page may be out of date; see the terminal."
    set_props("problem", {"children": words})


def _policy(app: Dash) -> str:
    """No request leaves the machine; only Dash's own inline scripts run."""
    hashes = " ".join(app.csp_hashes())
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; form-action 'none'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


def _file(engine: Engine) -> Callable[[str, str, str, str], Response]:
    def answer(campaign: str, page: str, name: str, end: str) -> Response:
        search = request.query_string.decode("utf-8", "replace")
        found, problem = catch_user_error(lambda: download(engine, campaign, page, name, end, search))
        if found is None:
            inside = end in IN_PAGE  # a sentence there is an answer
            return Response(text(problem) if inside else problem, 200 if inside else 404, mimetype="text/plain")
        return found

    return answer


def refuse_other_hosts(server: Flask, allowed: Sequence[str]) -> None:
    """Refuse requests under another host name, and those that pages of other hosts or ports make.

    A web page elsewhere could point its own name at this machine, or ask it for heavy queries as pictures. Addresses
    in numbers are no names; a link from elsewhere is followed.
    """

    @server.before_request
    def check() -> Response | None:
        host = urlsplit(f"//{request.host}").hostname or ""
        if host not in allowed and not _is_number(host):
            refused = Unknown(f"this dashboard answers to {', '.join(allowed)} and was asked for {host!r}")
        elif _is_of_another_page():
            refused = Unknown("this dashboard answers to its own pages; one of another site asked it")
        else:
            return None
        return Response(sentence(refused), status=403, mimetype="text/plain")


def _is_of_another_page() -> bool:
    """Whether a page of another site or port makes this request, other than by a link to here."""
    by = request.headers.get("Sec-Fetch-Site", "none")  # browsers say it; nobody else has to
    is_link = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    return by in ("cross-site", "same-site") and not is_link


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
