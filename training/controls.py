"""Controls of operators: for what a trial changes of its baseline, the simplest explanations.

distance     For anything measured beyond the training length: a window of that length, with which no query sees more
             keys than in training. There, and for forgetting, windows and other positions: ALiBi, a fixed penalty on
             distance, and no positions, since what ties no logit to a position also reads longer sequences. FoX on
             grammar at four times the training length is not shown to be better than the window.
             Sources: When Attention Sink Emerges, section 6; Train Short, Test Long; The Impact of Positional Encoding
             on Length Generalization.
temperature  For margins, SSMax, SSA, QK-norm, and signals that are one logit at another scale: constant temperatures,
             as each changes the scale of the logits first of all. Factors of two from 1, to both sides, as margins
             sharpen and slices flatten; a tuned one between 1/4 and 4 is within sqrt(2) of one of them or of 1. For S
             signals also sqrt(S), the same function. Sources: Scaled Signed Averaging, table 1; Integral Transformer,
             section 3.
parameters   For gates and other stages that add 1 % of the model's parameters or more: a feedforward of as many more,
             to the nearest width, so that the totals agree within 1 %. More parameters help most models. Source: Gated
             Attention (Qiu et al. 2025).
sink         For sinks, ground states and learned keys: off by one, which also leaves weight to nothing and learns
             nothing for it. Source: Affine-Scaled Attention, section 2.
"""

import math
from collections.abc import Iterator

from ablate.grid.control import ControlChange
from ablate.variants import Backbone, Number, Operator
from ablate.variants.papers.affine_scaled import off_by_one
from ablate.variants.stages.positions import Alibi, NoPositions
from ablate.variants.stages.transforms import Temperature
from ablate.variants.stages.visible import Window

TEMPERATURES = (0.25, 0.5, 2.0, 4.0)


def distance_controls(trained: int, measured: int, *, moved: bool) -> Iterator[ControlChange]:
    """Yield those of a trial that is measured beyond its training length, or that `moved` what distance does."""
    if measured > trained:
        yield ControlChange(f"a window of {trained}", "distance", {"operator.visible": Window(size=trained)})
    if moved or measured > trained:
        yield ControlChange("ALiBi", "distance", {"model.positions": Alibi()})
        yield ControlChange("no positions", "distance", {"model.positions": NoPositions()})


def operator_controls(operator: Operator, before: Operator, model: Backbone) -> Iterator[ControlChange]:
    """Yield the controls of the stages of `operator` that are not those of `before`."""
    changed = {stage for stage in (*operator.stages(), "signals") if getattr(operator, stage) != getattr(before, stage)}
    turned = model.positions.rotates and operator.signals.rotary == "per_signal"
    sliced = "signals" in changed and operator.merge.of_logits and not turned
    scaled = changed & {"margin", "preparation"} or ("score" in changed and operator.score.label == "ssa") or sliced
    if scaled:
        exact = {math.sqrt(operator.signals.count)} if sliced else set[float]()
        for tau in sorted({*TEMPERATURES, *exact}):
            stage = Temperature(tau=Number(init=tau, link="positive"))
            yield ControlChange(f"temperature {tau:.3g}", "temperature", {"operator.transform": stage})
    if "extra" in changed or ("normaliser" in changed and operator.normaliser.has_ground):
        yield ControlChange("off by one", "sink", {"operator.normaliser": off_by_one().normaliser})


def feedforward_control(added: int, total: int, channel: int, width: int) -> Iterator[ControlChange]:
    """Yield a feedforward with `added` parameters more than a model of `total`, whose `width` costs `channel` each.

    Nothing below 1 %: there, the baseline itself has as many.
    """
    if channel and added >= 0.01 * total:
        wider = width + round(added / channel)
        yield ControlChange(f"a feedforward of {wider}", "parameters", {"model.feedforward_width": wider})
