"""Bar above every page: campaigns, pages, age of the results, saved views, keys."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlencode

from ablate.dashboards.app.campaigns import IngestReport
from ablate.dashboards.app.page import AppPage, Component, dcc, html
from ablate.dashboards.data.formatting import count

TICK_MS: Final = 3000


def shell(pages: Sequence[AppPage]) -> Component:
    """Make the whole document; `page` is filled later."""
    return html.Div(
        [
            html.A("Skip to the content", href="#page", className="skip"),
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="seen", data={}),
            dcc.Store(id="theme"),
            dcc.Store(id="moment"),
            dcc.Interval(id="tick", interval=TICK_MS),
            html.Header(id="top"),
            html.P(id="said", className="unseen", role="status"),
            html.P(id="problem", role="alert"),
            html.P(id="offline", role="alert"),
            html.Main(id="page", tabIndex="-1"),
            _keys(pages),
        ]
    )


def top(
    campaigns: Sequence[str],
    campaign: str | None,
    pages: Sequence[AppPage],
    page: str | None,
    saved: tuple[Sequence[tuple[str, str]], str],
) -> list[Component]:
    """Make the bar above every page; `saved` is the views of the campaign, and why one of them cannot be read."""
    here = campaign or (campaigns[0] if campaigns else "")
    links = [
        html.A(
            each.title,
            href=f"/{quote(here)}/{each.name}",
            className="here" if each.name == page else "",
            title=f"{each.question} (g {each.letter})" if each.letter else each.question,
            **({"aria-current": "page"} if each.name == page else {}),
        )
        for each in pages
        if each.listed
    ]
    at = page or pages[0].name
    names = [
        html.A(name, href=f"/{quote(name)}/{at}", className="here" if name == campaign else "") for name in campaigns
    ]
    return [
        html.Div(
            [
                html.A("ablate", href="/", className="mark"),
                html.Nav(names, **{"aria-label": "Campaigns"}),
                html.Span(id="live", className="live"),
                html.Button("Pause", id="pause", type="button", title="Show nothing new for now (p)"),
                html.Details([html.Summary("Views"), _panel(here, *saved)], className="views"),
                html.Button("Light / dark", id="switch", type="button", title="Other colours (t)"),
                html.Button("?", id="help", type="button", title="Keys (?)", **{"aria-label": "Keys"}),
            ]
        ),
        html.Nav(links, **{"aria-label": "Pages"}, className="pages") if here else html.Div(),
    ]


def _panel(campaign: str, saved: Sequence[tuple[str, str]], words: str) -> Component:
    name = html.Label([html.Span("Name"), dcc.Input(id="view-name", type="text", debounce=False)])
    button = html.Button("Save this view", id="save", type="button")
    return html.Div([html.Div(views(campaign, saved, words), id="views"), name, button], className="panel")


def views(campaign: str, saved: Sequence[tuple[str, str]], words: str) -> list[Component]:
    """Link the saved views of a campaign, with the result of the last saving."""
    links = [
        html.Li(
            [
                html.A(name, href=f"/{quote(campaign)}/{page}?{urlencode({'view': name})}"),
                html.Span(f" {page}", className="note"),
            ]
        )
        for name, page in saved
    ]
    listed = html.Ul(links) if links else html.P("No view is saved yet.", className="note")
    return [listed, *([html.P(words, className="note", role="status")] if words else [])]


def saved_queries(campaign: str, queries: Mapping[str, str]) -> Component:
    """Link the saved queries of a campaign, by name."""
    if not queries:
        return html.P(["None yet: ", html.I("Save"), " below the query keeps one."], className="note")
    page = f"/{quote(campaign)}/sql?saved="
    return html.Ul([html.Li(html.A(name, href=page + name, title=query)) for name, query in queries.items()])


def live(report: IngestReport, campaign: str) -> Component:
    """Show the age of the results, or why some are missing."""
    if report.problem is not None:
        return html.Span(["Stale: ", report.problem], className="stale")
    if not report.warnings:
        return html.Span(report.words, className="note")
    link = html.A(count(len(report.warnings), "warning"), href=f"/{quote(campaign)}/overview")
    first = html.Span(["Incomplete results, ", link, ": ", report.warnings[0]], className="stale")
    return html.Span([first, html.Span(f" {report.words}", className="note")])


def _keys(pages: Sequence[AppPage]) -> Component:
    rows = [(f"g {page.letter}", page.title) for page in pages if page.listed and page.letter]
    rows += [("t", "light or dark"), ("p", "pause or go on"), ("?", "these keys"), ("Esc", "close")]
    table = html.Table(
        html.Tbody([html.Tr([html.Th(html.Kbd(key), scope="row"), html.Td(does)]) for key, does in rows])
    )
    close = html.Button("Close", id="close-keys", type="button")
    return html.Dialog([html.H2("Keys"), table, close], id="keys", **{"aria-label": "Keys"})
