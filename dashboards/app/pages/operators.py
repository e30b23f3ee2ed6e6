"""Operators: the formula of each, its numbers, and what it does to a row of logits, live."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import quote

import polars as pl

from ablate.dashboards.app.address import Address, entries, write_query
from ablate.dashboards.app.page import AppPage, Component, Control, Key, PageView, Slot, SlotContent, html, options
from ablate.dashboards.app.table_columns import WRAP, columns
from ablate.dashboards.data.formatting import capitalise, count, number
from ablate.dashboards.data.grid_context import CellLook
from ablate.dashboards.data.user_errors import Unknown, require
from ablate.dashboards.figures.weights import (
    LEARNED_KEY,
    SOFTMAX,
    draw_scores,
    draw_weights,
    head_styles,
    score_rows,
    weight_rows,
)
from ablate.dashboards.html.typeset import Piece, display, inline, typeset
from ablate.dashboards.theme.styles import INK, shared_style
from ablate.grid.operator_view import OperatorCatalogue, OperatorSetting, OperatorView, Profile

LOGITS: Final = "0.2, 4, 1.9, 2, -0.5, 0.1, -1.5, -3"  # a clear winner, a near tie and distractors
OWN: Final = "grid:"  # begins the names of operators of the campaign's grids; those of papers have no colon
_POINTS: Final = 121
_MOST: Final = 64
_NEUTRAL: Final = shared_style(INK)


class OperatorsAddress(Address):
    """The operator, arguments of the function that makes it, values of its numbers, and a row of logits."""

    operator: str = "softmax"
    arguments: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    logits: str | None = None


def maths_of(view: PageView) -> OperatorCatalogue:
    """Return the operator catalogue. Raises Unknown if there is none."""
    if view.maths is None:
        raise Unknown(
            "This dashboard was started without anything that knows the operators, so their formulas and weights are "
            "not here; `ablate dash` shows them, and `ablate operators NAME` in a terminal."
        )
    return view.maths


def own_operators(view: PageView) -> dict[str, Mapping[str, Any]]:
    """Return the operators of the campaign's grids as data, each once, by a unique name."""
    rows = view.store.sql(
        "SELECT g.operator, min(g.label) AS label, (t.spec->'operator')::VARCHAR AS spec FROM grid_trial g "
        "JOIN trial t USING (trial) WHERE t.spec IS NOT NULL GROUP BY ALL ORDER BY g.operator, label, spec"
    ).drop_nulls("spec")
    several = rows.filter(pl.col("operator").is_duplicated())["operator"].to_list()
    own: dict[str, Mapping[str, Any]] = {}
    for operator, label, text in rows.iter_rows():
        spec = json.loads(text)
        name = OWN + (label if operator in several else operator)
        while name in own:
            name += "'"
        own[name] = spec if isinstance(spec, dict) else {}
    return own


def operator_of(view: PageView) -> str | Mapping[str, Any]:
    """Return the operator that the address names. Raises Unknown."""
    name: str = view.address.operator
    own = own_operators(view) if name.startswith(OWN) else {}
    return own[require("this campaign", "operator", name, own)] if name.startswith(OWN) else name


def describe_view(view: PageView) -> OperatorView:
    """Describe the operator of a view. Raises Unknown, and as `OperatorCatalogue`."""
    return maths_of(view).describe(operator_of(view), entries(view.address.arguments))


def numbers_of(view: PageView) -> dict[str, float]:
    """Return the values that the address gives to numbers. Raises Unknown."""
    return {name: _number(text) for name, text in entries(view.address.numbers).items()}


def logits_of(view: PageView) -> list[float]:
    """Return the row of logits. Raises Unknown."""
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
    styles = head_styles(heads, found.label, {SOFTMAX: _NEUTRAL, **view.operators})
    legend = [Key(styles[key], _name(found, key), key) for key in heads if key or len(heads) == 1]
    alike = "Here its weights are softmax's." if all(tuple(row.keys) == tuple(usual) for row in rows) else ""
    message = "" if is_softmax else " ".join(filter(None, (alike, found.unseen)))
    if not is_softmax:
        legend.append(Key(_NEUTRAL, f"{SOFTMAX} (dash)", SOFTMAX))
    caption = f"Bar: weight of a key for the last query, which sees all {len(logits)}. {_sums(rows, found.apart)}"
    return SlotContent(draw_weights(frame, styles), caption, frame, legend, message, answer=found.line.replace("`", ""))


def _name(found: OperatorView, heads: str) -> str:
    return f"{found.label}, {heads}" if heads else found.label


def _sums(rows: Sequence[Profile], apart: str) -> str:
    """Say to what the keys sum, and the weights beside them."""
    sums = []
    for row in rows:
        keys = f"{capitalise(row.heads)}: keys" if row.heads else "Keys"
        one = "" if math.isclose(row.total, 1.0, abs_tol=1e-9) else ", not to 1"
        rest = [(apart, row.ground), (LEARNED_KEY, row.extra)]
        beside = [f"; the {name} has {number(weight, 4)}" for name, weight in rest if weight is not None]
        sums.append(f"{keys} sum to {number(row.total, 4)}{one}{''.join(beside)}.")
    return " ".join(sums)


def _scores(view: PageView) -> SlotContent:
    maths, found, logits = maths_of(view), describe_view(view), logits_of(view)
    widest = max(4.0, *(abs(z) for z in logits)) + 1
    points = [widest * (2 * i / (_POINTS - 1) - 1) for i in range(_POINTS)]
    given = operator_of(view), entries(view.address.arguments), numbers_of(view), points
    curves = [] if view.address.operator == SOFTMAX else maths.scores(*given)
    usual = maths.scores(SOFTMAX, {}, {}, points)[0].values
    frame = score_rows(curves, usual, points)
    heads = [curve.heads for curve in curves]
    styles = head_styles(heads, found.label, {SOFTMAX: _NEUTRAL, **view.operators}) | {SOFTMAX: _NEUTRAL}
    names = {each: _name(found, each) for each in heads} | {SOFTMAX: SOFTMAX}
    legend = [Key(styles[key], names[key], key) for key in styles]
    caption = (
        "Line: what a key with this logit counts before weights are normalised; softmax's is eᵃ. What stands before "
        "the score (margin, gate, temperature) is not in it."
    )
    return SlotContent(draw_scores(frame, CellLook(names, styles)), caption, frame, legend)


def _numbers(view: PageView) -> SlotContent:
    found, given = describe_view(view).numbers, numbers_of(view)
    if not found:
        return SlotContent(message="It has no numbers.")
    rows = []
    for each in found:
        here = "no slider" if each.span is None else f"{given.get(each.name, each.init):g}"
        rows.append((each.name, each.start, here, each.varies, each.range, each.what))
    names = ("number", "starts at", "here", "varies", "range", "description")
    frame = pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")
    caption = f"{count(len(rows), 'number')}. A slider moves one for the query that is shown, whatever it varies along."
    return SlotContent(caption=caption, data=frame, columns=columns(frame, {"description": WRAP}))


def _words(view: PageView) -> SlotContent:
    """Show what is known about an operator; its numbers have a table."""
    found = describe_view(view)
    parts: list[Component] = []
    if found.paper:
        parts.append(html.P(["Source: ", found.paper], className="note"))
    if found.use:
        parts.append(html.P(html.Code(found.use)))
    for each in found.parts:
        parts += [html.H3([f"{each.stage} ", html.Code(each.kind)]), *map(_set, typeset(each.formula))]
        if each.source and "Source:" not in each.formula:
            parts.append(html.P(f"Source: {each.source}.", className="note"))
    if found.options:
        listed = ", ".join(f"{name} = {value}" for name, value in found.options.items())
        parts += [html.H3("Options"), html.P(html.Code(listed))]
    if found.settings:
        settings = [html.Li(_setting(view, each)) for each in found.settings]
        parts += [html.H3("Where it is another operator"), html.Ul(settings)]
    if found.notes:
        parts += [html.H3("Pitfalls"), html.Ul([html.Li(_inline(note)) for note in found.notes])]
    whole = html.Div([_set(each) for each in display(found.equation.split("\n"))], className="maths")
    parts.append(html.Details([html.Summary("The whole equation, one choice per stage"), whole]))
    return SlotContent(parts=[html.Div(parts, className="operator")])


def _inline(text: str) -> list[Component]:
    return [_set(each) for each in inline(text)]


def _set(piece: Piece) -> Component:
    inner = piece.inner if isinstance(piece.inner, str) else [_set(each) for each in piece.inner]
    make, name = _ELEMENTS[piece.kind]
    return inner if make is None else make(inner, className=name) if name else make(inner)


_ELEMENTS: Final[Mapping[str, tuple[Any, str]]] = {
    "text": (None, ""), "variable": (html.I, ""), "sub": (html.Sub, ""), "sup": (html.Sup, ""),
    "root": (html.Span, "root"), "code": (html.Code, ""), "formula": (html.Span, "formula"),
    "note": (html.Span, "note"), "line": (html.Div, "line"), "display": (html.Div, "maths"), "paragraph": (html.P, ""),
}  # fmt: skip


def _setting(view: PageView, setting: OperatorSetting) -> Component:
    here = view.address
    if not setting.numbers and not setting.arguments:
        return html.Span(_inline(setting.words))
    arguments = {**entries(here.arguments), **setting.arguments}
    there = OperatorsAddress(
        operator=here.operator,
        arguments=tuple(f"{name}={value}" for name, value in arguments.items()),
        numbers=tuple(f"{name}={value:g}" for name, value in setting.numbers.items()),
        logits=here.logits,
    )
    href = f"/{quote(view.campaign)}/operators{write_query(there)}"
    return html.A(_inline(setting.words), href=href, title="Set the numbers so")


def _controls(view: PageView) -> Sequence[Control]:
    if view.maths is None:
        return ()
    known = {each.name: f"{each.label} · {each.paper}" for each in view.maths.list_operators()}
    own = {name: f"{name.removeprefix(OWN)} · in this campaign" for name in own_operators(view)}
    found, given, arguments = describe_view(view), numbers_of(view), entries(view.address.arguments)
    hint = "2 to 64 numbers with commas between them"
    controls = [
        Control("operator", "Operator", "choice", own | known, resets=("arguments", "numbers")),
        Control("logits", "Logits (nats)", "text", hint=hint, usual=LOGITS),
    ]
    for each in found.arguments:
        kind: Literal["choice", "number"] = "choice" if each.values else "number"
        usual = arguments.get(each.name, each.default)
        field = f"arguments:{each.name}"
        controls.append(Control(field, each.name, kind, options(each.values), "", usual, resets=("numbers",)))
    for slider in found.numbers:
        if slider.span is not None:
            low, high, step = slider.span
            value = given.get(slider.name, slider.init)
            span = min(low, value), max(high, value), step
            controls.append(
                Control(f"numbers:{slider.name}", slider.name, "slider", {}, slider.what, slider.init, span)
            )
    return controls


OPERATORS: Final = AppPage(
    name="operators",
    title="Operators",
    letter="e",
    about="What is each operator, and what does it do to a row of logits?",
    address=OperatorsAddress,
    controls=_controls,
    slots=(
        Slot("weights", "Weights of one row", _weights, half=True),
        Slot("formula", "Formula", _words, "words", half=True),
        Slot("score", "Score over the logit", _scores, half=True),
        Slot("numbers", "Numbers", _numbers, "table"),
    ),
    of="campaign",
)
