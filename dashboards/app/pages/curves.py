"""Curves: what is logged in training, by step, averaged over seeds."""

from collections.abc import Sequence

from dashboards.app.address import Address
from dashboards.app.page import Control, Key, Page, Shown, Slot, View, grid_of, options
from dashboards.figures.curves import curves, draw_curves
from dashboards.sections.charts import named
from dashboards.seeds import Scale, average_words, interval_words


class CurvesAddress(Address):
    """The grid, the metric, and the scale of its axis."""

    metric: str = "loss"
    linear: bool = False


def _curves(view: View) -> Shown:
    about = grid_of(view)
    scale: Scale = "linear" if view.address.linear else "log"
    found = curves(view.store, about.grid, view.address.metric, about.drawn, scale=scale)
    if found.frame.is_empty():
        return Shown(message=f"No run of this grid has logged {view.address.metric!r} yet.")
    caption = (
        f"Line: {average_words(scale)} over seeds of means over {found.width} steps. Band: {interval_words(scale)}, "
        f"n up to {max(found.frame['n'].to_list())}."
    )
    legend = [Key(about.look.styles[cell], about.look.names[cell], cell) for cell in about.drawn]
    figure = draw_curves(found, about.look, title=view.address.metric, scale=scale)
    return Shown(figure, caption, named(found.frame, about), legend)


def _controls(view: View) -> Sequence[Control]:
    names = view.store.sql("SELECT DISTINCT name FROM v_metric ORDER BY name")["name"]
    return (
        Control("metric", "Metric", "choice", options(names)),
        Control("linear", "Linear axis", "switch"),
    )


CURVES = Page(
    name="curves",
    title="Curves",
    letter="u",
    about="How does training go, and where do variants part?",
    address=CurvesAddress,
    controls=_controls,
    slots=(Slot("curves", "Training curves", _curves),),
)
