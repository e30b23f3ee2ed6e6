"""The words of an operator: what it is, its formulas with symbols and sources, where it becomes another, traps."""

from collections.abc import Callable, Mapping

from dashboards.app.components import Component, html
from dashboards.app.maths import Described, Part, Setting

Link = Callable[[Setting], str]
"""The address of the page at a setting."""


def words(found: Described, link: Link) -> list[Component]:
    """All that is known about an operator but its numbers, which stand in a table."""
    paper = html.P(["Source: ", found.paper], className="note") if found.paper else None
    use = html.P(html.Code(found.use)) if found.use else None
    parts = [html.P(found.line), paper, use, *(part for each in found.parts for part in _part(each))]
    if found.options:
        parts += [html.H3("Options"), html.P(_options(found.options))]
    if found.settings:
        parts += [html.H3("Where it is another operator"), html.Ul([_setting(each, link) for each in found.settings])]
    if found.notes:
        parts += [html.H3("What has misled people"), html.Ul([html.Li(note) for note in found.notes])]
    whole = html.Details([html.Summary("The whole equation, one choice per stage"), html.Pre(found.equation)])
    return [html.Div([each for each in (*parts, whole) if each is not None], className="operator")]


def _part(each: Part) -> list[Component]:
    source = [] if "Source:" in each.formula or not each.source else [f"\nSource: {each.source}."]
    return [html.H3([f"{each.stage} ", html.Code(each.kind)]), html.Pre([each.formula, *source])]


def _options(found: Mapping[str, str]) -> list[Component]:
    listed: list[Component] = []
    for name, value in found.items():
        listed += [html.Code(f"{name} = {value}"), ", "]
    return listed[:-1]


def _setting(each: Setting, link: Link) -> Component:
    if not each.numbers and not each.arguments:
        return html.Li(each.words)
    return html.Li(html.A(each.words, href=link(each), title="Set the numbers so"))
