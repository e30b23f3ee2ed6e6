"""One HTML document that needs nothing else: style, script and plotly.js are inside, and requests are forbidden."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Final

from ablate.dashboards.html.markup import script_json, tag, text
from ablate.dashboards.theme.styles import AXIS, FONT, INK, LINE, MUTED, PAPER, STATE_COLORS, Style, dark_partners

VARIABLES: Final[Mapping[str, tuple[str, str]]] = {
    "link": ("#0b5fa5", "#74b9f2"),
    "shade": ("#f5f6f8", "#1d2125"),
    "better": ("#0b5fa5", "#5fb0f0"),
    "worse": ("#b34700", "#ff9a5a"),
    "unproven": ("#1c2126", "#e8ebee"),
}
"""Colours that only the page has: name -> light, dark."""

_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
    "form-action 'none'; base-uri 'none'"
)


def document(title: str, body: str, styles: Sequence[Style]) -> str:
    """The whole file; `body` is HTML, `styles` are all that its figures use."""
    partners = dark_partners(styles)
    style = _font() + variables(partners) + _asset("report.css")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{text(_POLICY)}">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f'<link rel="icon" href="data:,"><title>{text(title)}</title><style>{style}</style>'
    )
    scripts = (
        f'<script type="application/json" id="dark-colors">{script_json(partners)}</script>'
        f"<script>{plotly_js()}</script><script>{_asset('report.js')}</script>"
    )
    noscript = "<noscript><p>Figures need JavaScript; the tables below do not.</p></noscript>"
    status = '<p class="unseen" role="status" id="status"></p>'
    page = f"<head>{head}</head><body>{tag('main', noscript + body)}{status}{scripts}</body>"
    return f'<!DOCTYPE html>\n<html lang="en">{page}</html>\n'


def variables(partners: Mapping[str, str]) -> str:
    """The colours as CSS variables, light by default and in print, dark where the system is.

    `data-theme` of the document says otherwise on a screen.
    """
    shared = {"ink": INK, "muted": MUTED, "line": LINE, "axis": AXIS, "paper": PAPER, **STATE_COLORS}
    light = {**shared, **{name: pair[0] for name, pair in VARIABLES.items()}}
    dark = {name: partners[color] for name, color in shared.items()}
    dark |= {name: pair[1] for name, pair in VARIABLES.items()}
    first = f":root{{color-scheme:light dark;--font:{FONT};{_declare(light)}}}"
    system = f"@media screen and (prefers-color-scheme: dark){{:root:not([data-theme=light]){{{_declare(dark)}}}}}"
    return f"{first}{system}@media screen{{:root[data-theme=dark]{{{_declare(dark)}}}}}"


def _font() -> str:
    """The pages' font, as data."""
    data = b64encode((files("ablate.dashboards") / "assets/app/fonts/inter.woff2").read_bytes()).decode()
    return (
        f'@font-face{{font-family:Inter;src:url("data:font/woff2;base64,{data}") format("woff2");font-weight:100 900}}'
    )


def _declare(colors: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{color};" for name, color in colors.items())


def plotly_js() -> str:
    """The script of plotly.js with its cartesian traces: a third of the size of all, and as much faster to run."""
    return _asset("app/plotly.js/plotly-cartesian.min.js")


def _asset(name: str) -> str:
    return (files("ablate.dashboards") / "assets" / name).read_text(encoding="utf-8")
