"""Operators: the formula of each, its numbers, and what it does to a row of logits, live."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import quote

import polars as pl

from dashboards.app.address import Address, entries, write_query
from dashboards.app.page import AppPage, Component, Key, PageView, Slot, SlotContent, html
from dashboards.app.parts import WRAP, Control, columns, options
from dashboards.data.formatting import count, number
from dashboards.data.grid_context import CellLook
from dashboards.data.user_errors import Unknown, require
from dashboards.figures.weights import (
    LEARNED_KEY,
    SOFTMAX,
    draw_scores,
    draw_weights,
    head_styles,
    score_rows,
    weight_rows,
)
from dashboards.theme.styles import INK, Style
from grid.operator_view import OperatorCatalogue, OperatorNumber, OperatorPart, OperatorSetting, OperatorView, Profile

LOGITS: Final = "0.2, 4, 1.9, 2, -0.5, 0.1, -1.5, -3"
"""A clear winner, a near tie and distractors."""
OWN: Final = "grid:"
"""Begins the names of operators of the campaign's grids; those of papers have no colon."""
_POINTS: Final = 121
_MOST: Final = 64
_NOTHING_KNOWN: Final = (
    "This dashboard was started without anything that knows the operators, so their formulas and weights are not here; "
    "`ablate dash` shows them, and `ablate operators NAME` in a terminal."
)
_NEUTRAL: Final = Style(INK, "#e8ebee", "dash", "circle")


class OperatorsAddress(Address):
    """The operator, arguments of the function that makes it, values of its numbers, and a row of logits."""

    operator: str = "softmax"
    arguments: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    logits: str | None = None
    log: bool = False
    """Whether scores have a log axis, on which those that are not positive are missing."""


def maths_of(view: PageView) -> OperatorCatalogue:
    """Return the operator catalogue. Raises Unknown if there is none."""
    if view.maths is None:
        raise Unknown(_NOTHING_KNOWN)
    return view.maths


def own_operators(view: PageView) -> dict[str, Mapping[str, Any]]:
    """The operators of the campaign's grids as data, each once, by a name that tells them apart."""
    rows = view.store.sql(
        "SELECT g.operator, min(g.label) AS label, (t.spec->'operator')::VARCHAR AS spec FROM grid_trial g "
        "JOIN trial t USING (trial) WHERE t.spec IS NOT NULL GROUP BY ALL ORDER BY g.operator, label, spec"
    )
    rows = rows.drop_nulls("spec")
    several = rows.filter(pl.col("operator").is_duplicated())["operator"].unique().to_list()
    found: dict[str, Mapping[str, Any]] = {}
    for operator, label, text in rows.iter_rows():
        spec = json.loads(text)
        name = OWN + (label if operator in several else operator)
        while name in found:
            name += "'"
        found[name] = spec if isinstance(spec, dict) else {}
    return found


def operator_of(view: PageView) -> str | Mapping[str, Any]:
    """The operator that the address names. Raises Unknown."""
    name: str = view.address.operator
    if not name.startswith(OWN):
        return name
    own = own_operators(view)
    return own[require("this campaign", "operator", name, own)]


def describe_view(view: PageView) -> OperatorView:
    """Describe the operator of a view. Raises Unknown, and as `OperatorCatalogue`."""
    return maths_of(view).describe(operator_of(view), entries(view.address.arguments))


def numbers_of(view: PageView) -> dict[str, float]:
    """The values that the address gives to numbers. Raises Unknown."""
    return {name: _number(text) for name, text in entries(view.address.numbers).items()}


def logits_of(view: PageView) -> list[float]:
    """The row of logits. Raises Unknown."""
    values = [_number(part) for part in (view.address.logits or LOGITS).replace(",", " ").split()]
    if not 2 <= len(values) <= _MOST:
        raise Unknown(f"a row of logits is 2 to {_MOST} finite numbers with commas between them; got {len(values)}")
    return values


def _number(text: str) -> float:
    try:
        if math.isfinite(value := float(text)):
            return value
    except ValueError:
        pass
    raise Unknown(f"the address takes finite numbers; got {text!r}")


def _weights(view: PageView) -> SlotContent:
    maths, found, logits = maths_of(view), describe_view(view), logits_of(view)
    rows = maths.weights(operator_of(view), entries(view.address.arguments), numbers_of(view), logits)
    usual = maths.weights(SOFTMAX, {}, {}, logits)[0].keys
    is_softmax = view.address.operator == SOFTMAX
    frame = weight_rows(rows, [None] * len(logits) if is_softmax else usual, logits, found.apart)
    heads = [row.heads for row in rows]
    styles = head_styles(heads, found.label, view.operators)
    legend = [Key(styles[key], _name(found, key), key) for key in heads]
    legend = [each for each in legend if each.key] or [Key(styles[heads[0]], _name(found, heads[0]), "")]
    legend += [] if is_softmax else [Key(_NEUTRAL, f"{SOFTMAX} (dash)", SOFTMAX)]
    alike = "Here its weights are softmax's." if all(tuple(row.keys) == tuple(usual) for row in rows) else ""
    message = "" if is_softmax else " ".join(filter(None, (alike, found.unseen)))
    caption = f"Bar: weight of a key for the last query, which sees all {len(logits)}. {_sums(rows, found.apart)}"
    return SlotContent(draw_weights(frame, styles), caption, frame, legend, message)


def _name(found: OperatorView, heads: str) -> str:
    return f"{found.label}, {heads}" if heads else found.label


def _sums(rows: Sequence[Profile], apart: str) -> str:
    told = []
    for row in rows:
        who = f"{row.heads[:1].upper()}{row.heads[1:]}: keys" if row.heads else "Keys"
        one = math.isclose(row.total, 1.0, abs_tol=1e-9)
        rest = [(apart, row.ground), (LEARNED_KEY, row.extra)]
        beside = [f"the {name} has {number(weight, 4)}" for name, weight in rest if weight is not None]
        told.append("; ".join([f"{who} sum to {number(row.total, 4)}{'' if one else ', not to 1'}", *beside]))
    return ". ".join(told) + "."


def _scores(view: PageView) -> SlotContent:
    maths, found, logits = maths_of(view), describe_view(view), logits_of(view)
    widest = max(4.0, *(abs(z) for z in logits)) + 1
    points = [widest * (2 * i / (_POINTS - 1) - 1) for i in range(_POINTS)]
    given = operator_of(view), entries(view.address.arguments), numbers_of(view), points
    curves = [] if view.address.operator == SOFTMAX else maths.scores(*given)
    usual = maths.scores(SOFTMAX, {}, {}, points)[0].values
    frame = score_rows(curves, usual, points)
    heads = [curve.heads for curve in curves]
    styles = head_styles(heads, found.label, view.operators) | {SOFTMAX: _NEUTRAL}
    names = {each: _name(found, each) for each in heads} | {SOFTMAX: SOFTMAX}
    legend = [Key(styles[key], names[key], key) for key in styles]
    alike = bool(curves) and all(tuple(curve.values) == tuple(usual) for curve in curves)
    caption = (
        "Line: what a key with this logit counts before weights are normalised; softmax's is eᵃ"
        f"{', and so is this one' * alike}. What stands before the score (margin, gate, temperature) is not in it."
    )
    return SlotContent(draw_scores(frame, CellLook(names, styles), log=view.address.log), caption, frame, legend)


def _numbers(view: PageView) -> SlotContent:
    found = describe_view(view).numbers
    if not found:
        return SlotContent(message="It has no numbers.")
    given = numbers_of(view)
    names = ("number", "starts at", "here", "varies", "range", "description")
    rows = [(each.name, each.start, _here(each, given), each.varies, each.range, each.what) for each in found]
    frame = pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")
    caption = f"{count(len(rows), 'number')}. A slider moves one for the query that is shown, whatever it varies along."
    return SlotContent(caption=caption, data=frame, columns=columns(frame, {"description": WRAP}))


def _here(each: OperatorNumber, given: Mapping[str, float]) -> str:
    return "no slider" if each.span is None else f"{given.get(each.name, each.init):g}"


def _words(view: PageView) -> SlotContent:
    here = view.address

    def link(setting: OperatorSetting) -> str:
        there = OperatorsAddress(
            operator=here.operator,
            arguments=_list_entries({**entries(here.arguments), **setting.arguments}),
            numbers=_list_entries({name: f"{value:g}" for name, value in setting.numbers.items()}),
            logits=here.logits,
        )
        return f"/{quote(view.campaign)}/operators{write_query(there)}"

    return SlotContent(parts=_view_parts(describe_view(view), link))


def _list_entries(found: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in found.items())


def _controls(view: PageView) -> Sequence[Control]:
    if view.maths is None:
        return ()
    known = {each.name: f"{each.label} · {each.paper}" for each in view.maths.list_operators()}
    own = {name: f"{name.removeprefix(OWN)} · in this campaign" for name in own_operators(view)}
    chosen = Control("operator", "Operator", "choice", own | known, resets=("arguments", "numbers"))
    found = describe_view(view)
    given, asked = numbers_of(view), entries(view.address.arguments)
    row = Control("logits", "Logits (nats)", "text", hint="2 to 64 numbers with commas between them", usual=LOGITS)
    arguments = []
    for each in found.arguments:
        kind: Literal["choice", "number"] = "choice" if each.values else "number"
        usual = asked.get(each.name, each.default)
        field = f"arguments:{each.name}"
        arguments.append(Control(field, each.name, kind, options(each.values), "", usual, resets=("numbers",)))
    log = Control("log", "Log axis of scores", "switch")
    return (chosen, row, *arguments, log, *(_slider(each, given) for each in found.numbers if each.span is not None))


def _slider(each: OperatorNumber, given: Mapping[str, float]) -> Control:
    low, high, step = each.span or (0.0, 1.0, 0.01)
    value = given.get(each.name, each.init)
    span = min(low, value), max(high, value), step
    return Control(f"numbers:{each.name}", each.name, "slider", hint=each.what, usual=each.init, span=span)


_Link = Callable[[OperatorSetting], str]
"""The address of the page at a setting."""


def _view_parts(found: OperatorView, link: _Link) -> list[Component]:
    """Show what is known about an operator; its numbers have a table."""
    paper = html.P(["Source: ", found.paper], className="note") if found.paper else None
    use = html.P(html.Code(found.use)) if found.use else None
    parts = [html.P(found.line), paper, use, *(part for each in found.parts for part in _part(each))]
    if found.options:
        parts += [
            html.H3("Options"),
            html.P(html.Code(", ".join(f"{name} = {value}" for name, value in found.options.items()))),
        ]
    if found.settings:
        parts += [html.H3("Where it is another operator"), html.Ul([_setting(each, link) for each in found.settings])]
    if found.notes:
        parts += [html.H3("What has misled people"), html.Ul([html.Li(note) for note in found.notes])]
    parts.append(html.Details([html.Summary("The whole equation, one choice per stage"), html.Pre(found.equation)]))
    return [html.Div([each for each in parts if each is not None], className="operator")]


def _part(each: OperatorPart) -> list[Component]:
    source = [] if "Source:" in each.formula or not each.source else [f"\nSource: {each.source}."]
    return [html.H3([f"{each.stage} ", html.Code(each.kind)]), html.Pre([each.formula, *source])]


def _setting(each: OperatorSetting, link: _Link) -> Component:
    if not each.numbers and not each.arguments:
        return html.Li(each.words)
    return html.Li(html.A(each.words, href=link(each), title="Set the numbers so"))


OPERATORS: Final = AppPage(
    name="operators",
    title="Operators",
    letter="e",
    about="What is each operator, and what does it do to a row of logits?",
    address=OperatorsAddress,
    controls=_controls,
    slots=(
        Slot("weights", "Weights of one row", _weights),
        Slot("score", "Score over the logit", _scores),
        Slot("numbers", "Numbers", _numbers, "table"),
        Slot("formula", "Formula", _words, "words"),
    ),
    of="campaign",
)
