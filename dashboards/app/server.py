"""The app as a web server on this machine: pages, downloads, headers that keep everything inside."""

import gzip
import hmac
import importlib
import ipaddress
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import brotli
from dash import Dash, set_props
from flask import Flask, Response, redirect, request

from ablate.dashboards.app import navigation
from ablate.dashboards.app.address import MOVED
from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.downloads import IN_PAGE, download
from ablate.dashboards.app.engine import Engine
from ablate.dashboards.app.page import AppPage
from ablate.dashboards.data.user_errors import Unknown, catch_user_error, sentence
from ablate.dashboards.html.document import variables
from ablate.dashboards.html.markup import text
from ablate.dashboards.theme.styles import dark_partners
from ablate.grid.errors import AblateError, NotFoundError, SpecError

_ASSETS: Final = Path(__file__).resolve().parent.parent / "assets" / "app"

_LOG: Final = logging.getLogger(__name__)

HERE: Final = ("127.0.0.1", "localhost", "::1")
"""Host names of this machine."""

_INDEX: Final = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">
<link rel="preload" href="/files/app/assets/fonts/inter.woff2" as="font" type="font/woff2" crossorigin>
<link rel="preload" href="/files/app/assets/plotly.js/plotly-cartesian.min.js" as="script">
<link rel="icon" href="data:,"><title>ablate</title><style>{%variables%}</style>{%css%}</head>
<body>{%app_entry%}<noscript><p>The dashboard needs JavaScript; `ablate report` works without.</p></noscript>
<footer>{%config%}{%scripts%}{%renderer%}</footer></body></html>"""
"""The page's own script loads plotly while the server answers the first callback."""


def make_app(campaigns: Campaigns, pages: Sequence[AppPage]) -> Dash:
    """The app; nothing is served yet."""
    with suppress(ImportError):  # plotly asks for it, and must not meet it half imported by another thread
        importlib.import_module("pandas")
    importlib.import_module("scipy.stats")  # takes half a second, for which the first reader of Compare would wait
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    app = Dash(
        "ablate",
        assets_folder=str(_ASSETS),
        assets_url_path="files/app/assets",  # no campaign and page are called so
        assets_ignore="plotly",  # loaded last
        title="ablate",
        update_title="",
        suppress_callback_exceptions=True,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
        add_log_handler=False,
        on_error=_report_error,
    )
    app.index_string = _INDEX.replace("{%variables%}", variables(dark_partners([])))
    app.layout = navigation.shell(pages)
    engine = Engine(campaigns, pages)
    engine.attach(app)
    server: Flask = app.server
    server.route("/files/<campaign>/<page>/<name>.<end>")(_file(engine))
    policy = _policy(app)

    @server.before_request
    def defer() -> Response | None:
        is_early = request.path.startswith(_LATER) and "whole" not in request.args
        return Response("", mimetype="text/javascript") if is_early else None

    @server.after_request
    def headers(response: Response) -> Response:
        if _is_page(response) and (place := _new_place()):
            response = redirect(place, 308)  # type: ignore[assignment]
        elif _is_page(response) and _names_missing(engine):
            response.status_code = 404
        _compress(response)
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response

    return app


def _search() -> str:
    return request.query_string.decode("utf-8", "replace")


def _new_place() -> str:
    """Return the address that has taken the place of one from before; empty if there is none."""
    *campaign, page = request.path.removeprefix("/").split("/")
    if len(campaign) != 1 or not campaign[0] or page not in MOVED:  # two slashes would name a host
        return ""
    return f"/{quote(campaign[0])}/{MOVED[page]}" + (f"?{_search()}" if _search() else "")


def _names_missing(engine: Engine) -> bool:
    """True if the page would refuse the address, because it names something that does not exist."""
    try:
        engine.begin(*engine.place(request.path), _search())
    except AblateError as error:
        return isinstance(error, NotFoundError | SpecError)
    except Exception:  # noqa: BLE001  # the page itself reports a fault
        return False
    return False


def _is_page(response: Response) -> bool:
    other = request.path.startswith(("/_dash", "/files/", "/favicon"))
    return request.method == "GET" and response.status_code == 200 and not other


_LATER: Final = ("/_dash-component-suites/dash_ag_grid/dash_ag_grid.", "/_dash-component-suites/dash/dash_table/")
"""Scripts that Dash lists in every page: tables.js loads the first after the first figure; no page has the second."""

_LEAST_COMPRESSED: Final = 1000
"""Bytes; less travels as fast as it is."""


def _compress(response: Response) -> None:
    """Compress texts for browsers that take it."""
    kind = response.mimetype or ""
    text_like = kind.startswith("text/") or kind.endswith(("json", "javascript", "xml"))
    coding = request.accept_encodings.best_match(("br", "gzip"))
    if not (text_like and coding) or response.status_code not in (200, 404):
        return
    if response.is_streamed and not response.direct_passthrough:
        return
    response.direct_passthrough = False
    body = response.get_data()
    if len(body) < _LEAST_COMPRESSED or "Content-Encoding" in response.headers:
        return
    is_static = request.path.startswith(_STATIC)
    response.set_data(_encode_static(body, coding) if is_static else _encode(body, coding, quality=4))
    response.headers["Content-Encoding"] = coding
    response.headers.add("Vary", "Accept-Encoding")


_STATIC: Final = ("/_dash-component-suites/", "/files/app/assets/")
"""Files that stay the same: plotly alone takes a fifth of a second to compress."""


@lru_cache(maxsize=128)
def _encode_static(body: bytes, coding: str) -> bytes:
    return _encode(body, coding, quality=9)


def _encode(body: bytes, coding: str, *, quality: int) -> bytes:
    return brotli.compress(body, quality=quality) if coding == "br" else gzip.compress(body, quality)


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
        response, problem = catch_user_error(lambda: download(engine, campaign, page, name, end, _search()))
        if response is None:
            inside = end in IN_PAGE  # a sentence there is an answer
            return Response(text(problem) if inside else problem, 200 if inside else 404, mimetype="text/plain")
        return response

    return answer


def refuse_strangers(server: Flask, allowed: Sequence[str], token: str | None = None) -> None:
    """Refuse requests under another host name, from pages of other hosts or ports, and without the `token`.

    A web page elsewhere could point its own name at this machine, or ask it for heavy queries as pictures or frames.
    Addresses in numbers are no names; a link from elsewhere to a page is followed. The link with the token sets a
    cookie.
    """

    @server.before_request
    def check() -> Response | None:
        host = urlsplit(f"//{request.host}").hostname or ""
        if host not in allowed and ip_of(host) is None:
            refused = Unknown(f"this dashboard answers to {', '.join(allowed)} and was asked for {host!r}")
        elif _is_of_another_page():
            refused = Unknown("this dashboard answers to its own pages; one of another site asked it")
        elif token is not None and _is_same(request.args.get("token"), token):
            return _admit(token)
        elif token is not None and not _is_same(request.cookies.get(_cookie()), token):
            refused = Unknown("this dashboard needs a token: open the link with `?token=` that `ablate dash` printed")
        else:
            return None
        return Response(sentence(refused), status=403, mimetype="text/plain")


def _is_of_another_page() -> bool:
    """Whether a page of another site or port makes this request, other than by a link to a page here."""
    headers = request.headers  # browsers send these; nobody else has to
    site, origin = headers.get("Sec-Fetch-Site"), headers.get("Origin")
    if request.method != "GET" and origin and site != "same-origin" and urlsplit(origin).netloc != request.host:
        return True
    is_link = request.method == "GET" and headers.get("Sec-Fetch-Dest") == "document"
    return site in ("cross-site", "same-site") and not (is_link and not request.path.startswith("/files/"))


def _is_same(sent: str | None, token: str) -> bool:
    return sent is not None and hmac.compare_digest(sent.encode(), token.encode())


def _cookie() -> str:
    """The name of the cookie; cookies do not tell ports apart."""
    return f"ablate-{urlsplit(request.host_url).port or 80}"


def _admit(token: str) -> Response:
    """Set the cookie and go on to the address without the token."""
    rest = urlencode([(name, value) for name, value in request.args.items(multi=True) if name != "token"])
    place = "/" + quote(request.path.lstrip("/")) + (f"?{rest}" if rest else "")  # two slashes would name a host
    response = Response(status=303, headers={"Location": place})
    response.set_cookie(_cookie(), token, httponly=True, samesite="Lax")
    return response


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is in numbers; None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
