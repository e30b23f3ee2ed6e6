"""Callbacks between an address, the controls, new results and the browser.

Going to an address makes the page anew. A control writes the address and refreshes the slots. New results refresh the
slots. A figure that is refreshed keeps the reader's zoom as long as its axes mean the same.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, final
from urllib.parse import quote, unquote

from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, callback_context, no_update, set_props
from dash.exceptions import PreventUpdate
from plotly.utils import PlotlyJSONEncoder

from dashboards.app import frame, navigation, redraw
from dashboards.app.address import Address, entries, read, replace_fields, resolve_view, save, saved_views, write_query
from dashboards.app.campaigns import Campaigns
from dashboards.app.page import AppPage, Component, PageView, Slot, SlotContent, html
from dashboards.app.parts import Control, options
from dashboards.app.redraw import digest
from dashboards.data.grid_context import campaign_styles, grid_context
from dashboards.data.user_errors import Unknown, catch_user_error, require, sentence
from dashboards.theme.styles import REST, dark_partners
from grid.operator_view import OperatorCatalogue
from store import Store
from store.campaign import only

_LOG: Final = logging.getLogger(__name__)

_LEGEND: Final = Control("hide", "", "hidden")
"""Fields that entries of legends set."""


@final
class Engine:
    """Pages over campaigns."""

    def __init__(self, campaigns: Campaigns, pages: Sequence[AppPage], maths: OperatorCatalogue | None = None) -> None:
        self.campaigns = campaigns
        self.maths = maths
        self.pages = {page.name: page for page in pages}

    def place(self, path: str) -> tuple[str, AppPage]:
        """Find the campaign and the page of a path; a missing part is the first one. Raises Unknown."""
        parts = [unquote(part) for part in path.split("/") if part]
        if len(parts) > 2:
            raise Unknown(f"an address is /CAMPAIGN/PAGE; got {path!r}")
        if not self.campaigns.names:
            raise Unknown("there is no campaign here; `ablate run` makes one")
        campaign = parts[0] if parts else self.campaigns.names[0]
        self.campaigns.root(campaign)
        return campaign, self.page_named(parts[1] if len(parts) > 1 else next(iter(self.pages)))

    def page_named(self, name: str) -> AppPage:
        """The page of that name. Raises Unknown."""
        require("the dashboard", "page", name, self.pages)
        return self.pages[name]

    def address(self, campaign: str, page: AppPage, search: str) -> Address:
        """The state that a query string says, or the saved view that it names. Raises Unknown, and as saved texts."""
        return read(page.address, resolve_view(self.campaigns.root(campaign), page.name, search))

    def check(self, path: str, search: str) -> None:
        """Raise what keeps the page of an address from being shown, as far as it can be told without results."""
        campaign, page = self.place(path)
        self.address(campaign, page, search)

    def view(self, store: Store, campaign: str, page: AppPage, address: Address, **how: bool) -> PageView:
        """Make the view of a page; `how` is `again` and `whole`. Raises as `grid_context` and `only`."""
        operators = campaign_styles(store)
        grids = store.grids()
        if not grids or (page.of == "campaign" and address.grid is None):
            return PageView(campaign, store, address, operators, None, self.maths, **how)
        grid = only("grid", address.grid or grids[0], grids, campaign)
        return PageView(campaign, store, address, operators, grid_context(store, grid, operators), self.maths, **how)

    def attach(self, app: Dash) -> None:
        """Register the callbacks."""
        app.callback(
            Output("page", "children"),
            Output("top", "children"),
            Output("seen", "data"),
            Output("problem", "children"),
            Input("url", "pathname"),
            Input("url", "search"),
            Input("theme", "data"),
            Input("again", "data"),
            State("seen", "data"),
        )(self.navigate)
        app.callback(
            Output("url", "search"),
            Output({"type": "figure", "slot": ALL}, "figure"),
            Output({"type": "words", "slot": ALL}, "children"),
            Output({"type": "table", "slot": ALL}, "rowData"),
            Output({"type": "files", "slot": ALL}, "children"),
            Output("seen", "data", allow_duplicate=True),
            Output("problem", "children", allow_duplicate=True),
            Output("again", "data"),
            Input({"type": "control", "field": ALL}, "value"),
            Input("tick", "n_intervals"),
            State("url", "pathname"),
            State("url", "search"),
            State("seen", "data"),
            State("problem", "children"),
            prevent_initial_call=True,
        )(self.refresh)
        app.callback(Output("live", "children"), Input("tick", "n_intervals"), State("url", "pathname"))(self.live)
        app.callback(
            Output("views", "children"),
            Input("save", "n_clicks"),
            State("view-name", "value"),
            State("url", "pathname"),
            State("url", "search"),
            prevent_initial_call=True,
        )(self.save)
        _attach_in_browser(app)

    def live(self, ticks: int | None, path: str) -> Any:
        """How new what is shown is."""
        del ticks
        place, _ = catch_user_error(lambda: self.place(path))
        return navigation.live(self.campaigns.describe(place[0]), place[0]) if place else ""

    def save(self, clicks: int | None, name: str | None, path: str, search: str) -> Any:
        """Keep the page as it is under a name."""
        if not clicks:
            raise PreventUpdate
        campaign, page = self.place(path)
        root = self.campaigns.root(campaign)
        address = self.address(campaign, page, search or "")
        _, problem = catch_user_error(lambda: save(root, name or "", page.name, write_query(address)))
        return navigation.views(campaign, saved_views(root), problem or f"Saved as {name}.")

    def navigate(
        self, path: str, search: str | None, theme: str | None, again: str | None, seen: Mapping[str, Any]
    ) -> tuple[Any, Any, Any, str]:
        """Make the page of an address, unless the reader sees it already and `again` is the same."""
        if theme is None:
            raise PreventUpdate  # the browser says it in a moment
        search = search or ""
        asked = {"path": path, "search": search, "theme": theme, "again": again}
        if seen and all(seen.get(name) == value for name, value in asked.items()):
            raise PreventUpdate
        campaign, page, kept, moment, views, torn = None, None, dict[str, Any](), "", list[tuple[str, str]](), None
        try:
            campaign, found = self.place(path)
            moment = self.campaigns.moment(campaign)
            page = found.name
            root = self.campaigns.root(campaign)
            listed, torn = catch_user_error(lambda: saved_views(root))
            views = listed or []
            made, problem = catch_user_error(lambda: self._page(campaign, found, search, theme))
            content, kept = made if made is not None else (frame.sentence(problem or ""), {})
        except Unknown as error:
            content = frame.sentence(sentence(error))
        now = {**asked, "moment": moment, **kept}
        top = navigation.top(self.campaigns.names, campaign, list(self.pages.values()), page, (views, torn or ""))
        return content, top, now, ""

    def _page(self, campaign: str, page: AppPage, search: str, theme: str) -> tuple[Any, dict[str, Any]]:
        """Make the parts of a page, and the state that a later refresh compares with."""
        address = self.address(campaign, page, search)
        with self.campaigns.reading(campaign) as store:
            view = self.view(store, campaign, page, address)
            look = frame.Looks(_partners(view, theme), address.hide)
            made = {slot.name: shown_of(slot, view) for slot in page.slots}
            given = _controls(page, view)
        values = {each.field: _value_of(each, address) for each in given}
        path = _path(campaign, page, address)
        slots = [frame.slot(slot, made[slot.name], path, look) for slot in page.slots]
        title = html.Div([html.H1(page.title), html.P(page.about, className="about")])
        parts = [html.Div([title, frame.controls(given, values, page.main)], className="head"), *slots]
        shown_values = {name: _plain(value) for name, value in values.items()}
        remakes = {each.field: list(each.resets) for each in given if each.resets is not None}
        words = {name: frame.words(shown, address.hide) for name, shown in made.items()}
        return parts, {"values": shown_values, "remakes": remakes, **_collect_state(made, words, given)}

    def refresh(
        self, values: Sequence[Any], ticks: int, path: str, search: str, seen: Mapping[str, Any], problem: str | None
    ) -> tuple[Any, ...]:
        """The slots again, after a control or new results."""
        del ticks
        if path != seen.get("path"):
            raise PreventUpdate  # another page is on its way
        place, _ = catch_user_error(lambda: self.place(path))
        if place is None:
            raise PreventUpdate  # the page says it
        campaign, page = place
        moment = self.campaigns.moment(campaign)
        if not seen.get("values"):  # there was nothing to show, and no control
            if moment == seen["moment"]:
                raise PreventUpdate
            return _only(again=moment)
        before = seen["values"]
        fields = [each["id"]["field"] for each in callback_context.inputs_list[0]]
        address = self.address(campaign, page, search or "")
        said = dict(zip(fields, map(_value, values), strict=True))
        other = {name: value for name, value in said.items() if _plain(value) != before.get(name)}
        gone = {name: None for field in other for name in seen["remakes"].get(field, ())}
        new = replace_fields(address, gone | other)
        if new == address and moment == seen["moment"]:
            if problem:
                return _only(problem="")  # the wrong input was taken back
            raise PreventUpdate
        now = write_query(new) if new != address else search or ""
        if other.keys() & seen["remakes"].keys():  # navigation follows: what can be chosen is another
            return _only(now, problem="")
        values_now = {**before, **{name: _plain(value) for name, value in said.items()}}
        shown = {**seen, "search": now, "moment": moment, "values": values_now}
        told = now if new != address else no_update  # else it would undo a link that the reader has just followed
        return told, *self._redrawn(campaign, page, new, shown, seen), "", no_update

    def _redrawn(
        self, campaign: str, page: AppPage, address: Address, now: Mapping[str, Any], seen: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """Update figures, words, tables and files of the slots, and the state `now`, from the state `seen`."""
        with self.campaigns.reading(campaign) as store:
            view = self.view(store, campaign, page, address, again=True)
            look = frame.Looks(_partners(view, seen["theme"]), address.hide)
            made = {slot.name: shown_of(slot, view) for slot in page.slots}
            given = _controls(page, view)
        words = {name: frame.words(shown, address.hide) for name, shown in made.items()}
        after = _collect_state(made, words, given)
        for each in given:
            if after["choices"].get(each.field) != seen["choices"].get(each.field):  # there are others by now
                set_props({"type": "control", "field": each.field}, {"options": frame.options_of(each)})
        order = [[each["id"]["slot"] for each in outputs] for outputs in callback_context.outputs_list[1:5]]
        by_name = {slot.name: slot for slot in page.slots}
        figures = [
            redraw.figure(made[name], look, same=after["axes"][name] == seen["axes"].get(name)) for name in order[0]
        ]
        told = [no_update if after["words"][name] == seen["words"].get(name) else words[name] for name in order[1]]
        for name in order[2]:
            if after["heads"][name] != seen["heads"].get(name):
                set_props({"type": "table", "slot": name}, redraw.columns(made[name]))
        tables = [made[name].data.rows(named=True) for name in order[2]]
        link = _path(campaign, page, address)
        bare = after["bare"]
        same = {name for name in made if now["search"] == seen["search"] and (name in bare) == (name in seen["bare"])}
        files = [no_update if name in same else frame.files(by_name[name], made[name], link) for name in order[3]]
        moved = _find_changed_defaults(
            given, address, seen["usual"]
        )  # the page's script sets them once this has been seen
        values = {**now["values"], **{name: _plain(value) for name, value in moved.items()}}
        return figures, told, tables, files, {**now, **after, "values": values, "moved": moved}


def _only(search: Any = no_update, *, problem: Any = no_update, again: Any = no_update) -> tuple[Any, ...]:
    """Answer `refresh` without a change of the slots."""
    slots = ([no_update] * len(each) for each in callback_context.outputs_list[1:5])
    return search, *slots, no_update, problem, again


def _attach_in_browser(app: Dash) -> None:
    """Callbacks that the page's own script answers."""
    in_browser = (
        ("clicked", "data", Input({"type": "figure", "slot": MATCH}, "clickData"), "clicked"),
        ("picked", "children", Input({"type": "table", "slot": MATCH}, "selectedRows"), "picks"),
    )
    for name, part, told, given in in_browser:
        app.clientside_callback(  # type: ignore[no-untyped-call]
            ClientsideFunction("ablate", name),
            Output({"type": name, "slot": MATCH}, part),
            told,
            State({"type": given, "slot": MATCH}, "data"),
            prevent_initial_call=True,
        )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("ablate", "reload"), Output("reloaded", "data"), Input("seen", "data")
    )


def shown_of(slot: Slot, view: PageView) -> SlotContent:
    """Make the content of a slot, or the sentence of its error; a bug of one slot leaves the others standing."""
    try:
        found, problem = catch_user_error(lambda: slot.make(view))
    except Exception as error:  # noqa: BLE001  # told and logged
        _LOG.exception("the part %r of a page failed", slot.name)
        found, problem = None, f"This part failed ({type(error).__name__}); the terminal of the dashboard shows where."
    return SlotContent(message=problem or "") if found is None else found


def _collect_state(
    made: Mapping[str, SlotContent], words: Mapping[str, Sequence[Component]], given: Sequence[Control]
) -> dict[str, Any]:
    """Collect what a refresh compares: slots and their captions by name, controls by field."""
    texts = {name: json.dumps(each, cls=PlotlyJSONEncoder) for name, each in words.items()}
    return {
        "axes": {name: redraw.axes(shown) for name, shown in made.items()},
        "heads": {name: redraw.heads(shown) for name, shown in made.items()},
        "bare": [name for name, shown in made.items() if frame.is_sentence(shown)],
        # the same words stay in the browser, with what is open, selected and scrolled in them
        "words": {name: digest(text) for name, text in texts.items()},
        "choices": {each.field: digest(json.dumps(dict(each.options))) for each in given if each.options},
        "usual": {each.field: _plain(each.usual) for each in given},
    }


def _find_changed_defaults(given: Sequence[Control], address: Address, before: Mapping[str, Any]) -> dict[str, Any]:
    """Find controls that show a default which new results have changed."""
    silent = (each for each in given if _control_value(each, address) in (None, ()))
    return {each.field: each.usual for each in silent if before.get(each.field) != _plain(each.usual)}


def _controls(page: AppPage, view: PageView) -> Sequence[Control]:
    if page.of == "campaign":
        return (*page.controls(view), _LEGEND)
    if view.about is None:
        return ()
    grid = Control("grid", "Grid", "choice", options(view.store.grids()), usual=view.about.grid, resets=())
    return (grid, *page.controls(view), _LEGEND)


def _path(campaign: str, page: AppPage, address: Address) -> str:
    return f"/{quote(campaign)}/{page.name}{write_query(address)}"


def _value_of(control: Control, address: Address) -> Any:
    value = _control_value(control, address)
    if value in (None, ()):
        return control.usual
    return str(value) if control.kind == "choice" else value  # as its options are written


def _control_value(control: Control, address: Address) -> Any:
    name, several, entry = control.field.partition(":")
    return entries(getattr(address, name)).get(entry) if several else getattr(address, name)


def _plain(value: Any) -> Any:
    """A value of a state as JSON keeps it, so that it can be compared with one that came back from the browser."""
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


def _partners(view: PageView, theme: str) -> Mapping[str, str] | None:
    if theme != "dark":
        return None
    cells = view.about.look.styles.values() if view.about else ()
    return dark_partners([REST, *view.operators.values(), *cells])
