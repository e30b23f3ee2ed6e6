"""Callbacks between an address, the controls, new results and the browser.

An address of another page makes the page anew. A control changes the address. Any other change of the address, and new
results, refresh the slots of the open page; a figure keeps the reader's zoom while its axes mean the same.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple, final
from urllib.parse import quote, unquote
from zlib import crc32

from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, callback_context, no_update, set_props
from dash.exceptions import PreventUpdate

from ablate.dashboards.app import frame, navigation
from ablate.dashboards.app.address import (
    MOVED,
    Address,
    read,
    replace_fields,
    resolve_view,
    save,
    saved_views,
    write_query,
)
from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.page import (
    AS_ABOVE,
    AppPage,
    Control,
    PageView,
    Slot,
    SlotContent,
    html,
)
from ablate.dashboards.app.page_cache import PageCache, PageKey
from ablate.dashboards.app.page_controls import page_controls, require_options, value_of
from ablate.dashboards.data.grid_context import campaign_styles, grid_context
from ablate.dashboards.data.user_errors import Unknown, catch_user_error, require
from ablate.dashboards.theme.styles import REST, Style, dark_partners
from ablate.store import Layout, Store
from ablate.store.campaign import only
from ablate.store.files.saved_texts import QUERIES

_LOG: Final = logging.getLogger(__name__)
_LONGEST_QUERY: Final = 20_000  # characters of a query that the browser may save

_Kept = tuple[Mapping[str, SlotContent], Sequence[Control], Sequence[Style]]
"""Slots, controls, and styles with a dark partner."""


class _Content(NamedTuple):
    slots: Mapping[str, SlotContent]
    controls: Sequence[Control]
    values: Mapping[str, Any]  # by field of a control
    display: frame.Display
    path: str  # the address, with the fields that are not at their defaults

    def state(self) -> dict[str, Any]:
        """Return what a later refresh compares, as JSON."""
        shapes = {each.field: crc32(repr(each._replace(usual=None)).encode()) for each in self.controls}
        values = {name: _plain(value) for name, value in self.values.items()}
        resets = {each.field: list(each.resets) for each in self.controls if each.resets}
        dark = self.display.partners is not None
        axes = {name: [frame.identify_axes(shown), dark] for name, shown in self.slots.items()}
        words = {
            name: crc32(repr(frame.words(shown, self.display.hide)).encode()) for name, shown in self.slots.items()
        }
        return {"values": values, "resets": resets, "shapes": shapes, "axes": axes, "words": words}


class PageUpdate(NamedTuple):
    """Outputs of the callback `update`, in its order; the default leaves a part of the page as it is."""

    page: Any = no_update
    top: Any = no_update
    seen: Any = no_update  # the state that the browser sends with its next change
    url: Any = no_update
    problem: str = ""
    moment: Any = no_update


@final
class Engine:
    """Pages over campaigns."""

    def __init__(self, campaigns: Campaigns, pages: Sequence[AppPage]) -> None:
        self.campaigns = campaigns
        self.pages = {page.name: page for page in pages}
        self._kept: PageCache[_Kept] = PageCache()

    def place(self, path: str) -> tuple[str, AppPage]:
        """Find the campaign and the page of a path; a missing part is the first one. Raises Unknown."""
        parts = [unquote(part) for part in path.split("/") if part]
        if len(parts) > 2:
            raise Unknown(f"{path!r} is no address here; write /CAMPAIGN/PAGE")
        if not self.campaigns.names:
            raise Unknown("there is no campaign here; `ablate run` makes one")
        campaign = parts[0] if parts else self.campaigns.names[0]
        self.campaigns.root(campaign)
        return campaign, self.page_named(parts[1] if len(parts) > 1 else next(iter(self.pages)))

    def page_named(self, name: str) -> AppPage:
        """Return the page of that name, or the one that has taken its place. Raises Unknown."""
        if name == "operators":
            raise Unknown("operators have no page here: `ablate operators NAME` explains one, docs/operators.md all")
        return self.pages[require("the dashboard", "page", MOVED.get(name, name), self.pages)]

    def address(self, campaign: str, page: AppPage, search: str) -> Address:
        """Read a query string, or the saved view that it names. Raises Unknown, and as saved texts."""
        return read(page.address, resolve_view(self.campaigns.root(campaign), page.name, search))

    def begin(self, campaign: str, page: AppPage, search: str) -> None:
        """Begin to make the page of an address, which the browser asks for once its scripts are loaded.

        Raises what the page would, before its slots: as `address`, `view` and the controls.
        """
        address = self.address(campaign, page, search)
        key = self._key(campaign, page, address)
        keeps = page.of == "grid"  # a log or a query may have news at the same moment
        there = self._kept.get(key)
        if there is not None and there.done() and there.exception() is None:
            require_options(page, there.result()[1], address)
        check = page.check if search and not self._kept.has_passed(key) else None
        if not key[1] or not (keeps or search) or (there is not None and check is None):
            return  # nothing can be read yet, there is nothing to check, or it is there
        with ExitStack() as opened:
            view = self.view(opened.enter_context(self.campaigns.reading(campaign)), campaign, page, address)
            controls = page_controls(page, view) if search and page.checks and there is None else None
            if check is not None:
                check(view)
                self._kept.note_passed(key)
            require_options(page, controls or (), address)
            if keeps and there is None:
                self._kept.start(partial(_make_page, page, view, controls, opened.pop_all()), key)

    def _key(self, campaign: str, page: AppPage, address: Address) -> PageKey:
        return campaign, self.campaigns.moment(campaign), page.name, write_query(address)

    def view(self, store: Store, campaign: str, page: AppPage, address: Address, **how: bool) -> PageView:
        """Make the view of a page; `how` is `is_refresh` and `whole`. Raises as `grid_context` and `only`."""
        styles = campaign_styles(store)
        grids = store.grids()
        context = None
        if grids and (page.of == "grid" or address.grid is not None):
            grid = only("grid", address.grid or grids[0], grids, f"the campaign {campaign}")
            context = grid_context(store, grid, styles)
        return PageView(campaign, store, address, styles, context, **how)

    def attach(self, app: Dash) -> None:
        """Register the callbacks."""
        app.callback(
            Output("page", "children"),
            Output("top", "children"),
            Output("seen", "data"),
            Output("url", "search"),
            Output("problem", "children"),
            Output("moment", "data"),
            Input({"type": "control", "field": ALL}, "value"),
            Input("url", "pathname"),
            Input("url", "search"),
            Input("theme", "data"),
            Input("moment", "data"),
            State("seen", "data"),
        )(self.update)
        app.callback(
            Output("live", "children"), Input("tick", "n_intervals"), State("url", "pathname"), State("moment", "data")
        )(self.poll)
        app.callback(
            Output("views", "children"),
            Input("save", "n_clicks"),
            State("view-name", "value"),
            State("url", "pathname"),
            State("url", "search"),
            prevent_initial_call=True,
        )(self.save)
        app.callback(
            Output("query-saved", "children"),
            Input("save-query", "n_clicks"),
            State("query-name", "value"),
            State("draft", "data"),
            State("url", "pathname"),
            prevent_initial_call=True,
        )(self.save_query)
        in_browser = (
            ("clicked", "data", "figure", ("clickData", "selectedData"), "clicked"),
            ("picked", "children", "table", ("selectedRows",), "picks"),
        )
        for name, part, source, events, stored in in_browser:
            app.clientside_callback(  # type: ignore[no-untyped-call]
                ClientsideFunction("ablate", name),
                Output({"type": name, "slot": MATCH}, part),
                [Input({"type": source, "slot": MATCH}, event) for event in events],
                State({"type": stored, "slot": MATCH}, "data"),
                prevent_initial_call=True,
            )

    def poll(self, ticks: int | None, path: str, moment: str | None) -> Any:
        """Show the age of the results; another `moment` refreshes the page."""
        del ticks
        place, _ = catch_user_error(lambda: self.place(path))
        if place is None:
            return ""
        now = self.campaigns.moment(place[0])
        if now != moment:
            set_props("moment", {"data": now})
        return navigation.live(self.campaigns.describe(place[0]), place[0])

    def save(self, clicks: int | None, name: str | None, path: str, search: str) -> Any:
        """Keep the page as it is under a name."""
        if not clicks:
            raise PreventUpdate
        campaign, page = self.place(path)
        root = self.campaigns.root(campaign)
        address = self.address(campaign, page, search or "")
        _, problem = catch_user_error(lambda: save(root, name or "", page.name, write_query(address)))
        return navigation.views(campaign, saved_views(root), problem or f"Saved as {name}.")

    def save_query(self, clicks: int | None, name: str | None, text: str | None, path: str) -> Any:
        """Keep the query in the editor as `ablate sql --save` does, under its name in small letters without blanks."""
        if not clicks:
            raise PreventUpdate
        campaign, _ = self.place(path)
        layout = Layout(self.campaigns.root(campaign))
        if not (text or "").strip() or len(text or "") > _LONGEST_QUERY:
            return [f"A query of 1 to {_LONGEST_QUERY:,} characters can be saved."]
        file = "-".join((name or "").lower().split())
        _, problem = catch_user_error(lambda: QUERIES.save(layout, file, text or ""))
        if problem is not None:
            return [problem]
        set_props("saved-queries", {"children": navigation.saved_queries(campaign, QUERIES.every(layout))})
        return [html.A(f"Saved as {file}", href=f"/{quote(campaign)}/sql?saved={file}")]

    def update(
        self,
        values: Sequence[Any],
        path: str,
        search: str | None,
        theme: str | None,
        moment: str | None,
        seen: dict[str, Any],
    ) -> PageUpdate:
        """Answer any change; `seen` is the state of the last answer.

        Raises Unknown for the value of a control that the address does not take; the page stays as it is.
        """
        del moment  # a reason to look; another campaign may have another one
        if theme is None:
            raise PreventUpdate  # the browser sends it in a moment
        search, controls = search or "", callback_context.inputs_list[0]
        url: Any = no_update
        entered = {each["id"]["field"]: _value(value) for each, value in zip(controls, values, strict=True)}
        place, _ = catch_user_error(lambda: self.place(path))
        here = place if "values" in seen and seen["path"] == path else None
        if here is not None:
            chosen = {name: value for name, value in entered.items() if _plain(value) != seen["values"].get(name)}
            if chosen:
                resets = {name: None for field in chosen for name in seen["resets"].get(field, ())}
                search = url = write_query(replace_fields(self.address(*here, search), resets | chosen))
        moment = "" if place is None else self.campaigns.moment(place[0])
        now = {"path": path, "search": search, "theme": theme, "moment": moment}
        if now.items() <= seen.items():
            return PageUpdate()
        content = None
        if here is not None:
            content, _ = catch_user_error(lambda: self._make(*here, search, theme, is_refresh=url is no_update))
        if here is None or content is None:
            page, top, state = self.show(path, search, theme)
            if place is not None and state:  # after an error, any later moment is a reason to look again
                now["moment"] = moment or self.campaigns.moment(place[0])  # the first reader makes the snapshot
            return PageUpdate(page, top, {**now, **state}, url, moment=now["moment"] or None)
        page, state = no_update, content.state()
        if state["shapes"].keys() == seen["shapes"].keys():
            before = {**seen, "values": {name: _plain(value) for name, value in entered.items()}}
            _refresh(here[1], content, state, before)
        else:  # the page has other controls
            page = _parts(here[1], content)
        return PageUpdate(page, no_update, {**now, **state}, url)

    def show(self, path: str, search: str, theme: str) -> tuple[Any, Any, dict[str, Any]]:
        """Make the page of an address or the sentence of its error, the bar above it, and its state."""
        place, problem = catch_user_error(lambda: self.place(path))
        names, pages = self.campaigns.names, [*self.pages.values()]
        if place is None:
            part = next((unquote(part) for part in path.split("/") if part), None)
            top = navigation.top(names, part if part in names else None, pages, None, ([], ""))
            return frame.sentence(problem or ""), top, {}
        campaign, page = place
        views, torn = catch_user_error(lambda: saved_views(self.campaigns.root(campaign)))
        top = navigation.top(names, campaign, pages, page.name, (views or [], torn or ""))
        content, problem = catch_user_error(lambda: self._make(campaign, page, search, theme))
        if content is None:
            return frame.sentence(problem or ""), top, {}
        return _parts(page, content), top, content.state()

    def _make(self, campaign: str, page: AppPage, search: str, theme: str, *, is_refresh: bool = False) -> _Content:
        """Make the content of a page. Raises as `address` and `view`."""
        address = self.address(campaign, page, search)
        key = self._key(campaign, page, address)
        made = self._kept.get(key)
        if made is None:
            with ExitStack() as opened:
                store = opened.enter_context(self.campaigns.reading(campaign))
                view = self.view(store, campaign, page, address, is_refresh=is_refresh)
                keeps = key[1] and page.of == "grid"
                make = partial(_make_page, page, view, None, opened.pop_all())
                made = self._kept.start(make, key if keeps else None)
        if made.exception() is not None:
            self._kept.drop(key)
        slots, controls, styles = made.result()
        partners = dark_partners(styles) if theme == "dark" else None
        values = {each.field: value_of(each, address) for each in controls}
        path = f"/{quote(campaign)}/{page.name}{write_query(address)}"
        display = frame.Display(partners, address.hide, str(self.campaigns.root(campaign)))
        return _Content(slots, controls, values, display, path)


def _make_page(page: AppPage, view: PageView, controls: Sequence[Control] | None, opened: ExitStack) -> _Kept:
    """Make the slots of a page, and its controls unless they are made; then close what is `opened`."""
    with opened:
        slots = _say_once({slot.name: shown_of(slot, view) for slot in page.slots})
        controls = page_controls(page, view) if controls is None else controls
        return slots, controls, [REST, *view.styles.values()]


def _parts(page: AppPage, content: _Content) -> Any:
    title = html.Div([html.H1(page.title), html.P(page.question, className="about")])
    controls = frame.controls(content.controls, content.values, page.main)
    slots = [frame.section(slot, content.slots[slot.name], content.path, content.display) for slot in page.slots]
    columns = " halves" if any(slot.half for slot in page.slots) else ""
    return html.Div(
        [html.Div([title, *controls], className="head"), *slots], className=f"parts page-{page.name}{columns}"
    )


def _refresh(page: AppPage, content: _Content, now: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Update the slots of an open page, and the controls that differ from the ones in the browser."""
    for each in content.controls:
        name = each.field
        if any(now[part].get(name) != before[part].get(name) for part in ("values", "shapes")):
            set_props({"type": "control", "field": name}, frame.control_props(each, content.values[name]))
    for slot in page.slots:
        shown = content.slots[slot.name]
        set_props(f"slot-{slot.name}", {"className": frame.class_of(slot, shown)})
        for kind, props in frame.changes(slot, shown, content.path, content.display).items():
            if kind == "words" and now["words"][slot.name] == before["words"][slot.name]:
                continue  # a browser takes seconds to replace the schema of page SQL
            if kind == "figure" and shown.figure is not None and now["axes"][slot.name] == before["axes"][slot.name]:
                props["figure"] = frame.change_figure(props["figure"])
            set_props({"type": kind, "slot": slot.name}, props)


def _say_once(slots: dict[str, SlotContent]) -> dict[str, SlotContent]:
    """Show the first of several slots that lack content for the same reason."""
    messages = [shown.message for shown in slots.values()]
    return {
        name: shown._replace(message=AS_ABOVE) if shown.message and shown.message in messages[:at] else shown
        for at, (name, shown) in enumerate(slots.items())
    }


def shown_of(slot: Slot, view: PageView) -> SlotContent:
    """Make the content of a slot, or the sentence of its error; a bug of one slot leaves the others standing."""
    try:
        content, problem = catch_user_error(lambda: slot.make(view))
    except Exception as error:  # noqa: BLE001  # told and logged
        _LOG.exception("the part %r of a page failed", slot.name)
        said = f"This part failed ({type(error).__name__}); the terminal of the dashboard shows where."
        return SlotContent(message=said)
    return SlotContent(message=problem or "") if content is None else content


def _plain(value: Any) -> Any:
    """Convert a value to JSON, so that it can be compared with one that came back from the browser."""
    if isinstance(value, bool):
        return "1" if value else None
    if isinstance(value, int | float):
        return f"{value:g}"
    return list(value) or None if isinstance(value, tuple | list) else value or None


def _value(value: Any) -> Any:
    """Convert the value of a control to a field of an address: a switch is a list of nothing or of "1"."""
    if value == ["1"]:
        return "1"
    return tuple(value) if isinstance(value, list) and value else None if value == [] else value
