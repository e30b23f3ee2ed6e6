"""What is drawn of each evaluation: what it varies, or how a predictor without training fares that is made for it.

A new kind needs an entry in `EVALUATIONS`: how a spec of it is written, a task whose models it judges, and its panels.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from grid.errors import SpecError
from runners.catalogue import text_evaluation_drawings as texts
from runners.catalogue.panels import Cell, Chart, Panel, Row, Series, Strip, Words, number, picture
from runners.evaluations import BoundaryValues, DeviantInputs, Evaluation, LargeValue, LengthExtrapolation
from runners.evaluations.deviant_inputs import DeviantInputsJudge
from runners.evaluations.large_value import LargeValueJudge
from runners.tasks import LinearFunctions, Measurements, Quantifiers, Task
from runners.tasks.synthetic.in_context import SCORED_FROM
from runners.tasks.synthetic.linear_functions import least_squares
from runners.tasks.synthetic.quantifiers import running
from runners.tasks.text.masked_text import MaskedText


class Drawing(NamedTuple):
    """How a kind is shown."""

    write: Callable[[Path], Evaluation]
    """A spec to copy; files are in the folder."""
    task: Callable[[Path], Task]
    """A task whose models it judges."""
    panels: Callable[[Path], list[Panel]]
    legend: Mapping[str, str]
    title: str = "what a model is shown"


def _deviant(folder: Path) -> list[Panel]:
    del folder
    spec = DeviantInputs(sigma=(1.0, 10.0, 100.0), functions=1, sequences=1, points=6)
    judge = spec.open(LinearFunctions())
    assert isinstance(judge, DeviantInputsJudge)
    found: list[Panel] = []
    for sigma in spec.sigma:
        x, y = (each[0, 0].tolist() for each in judge.prompts(sigma))
        found.append(_prompt(f"sigma_first = {sigma:g}", x, y, SCORED_FROM))
    (named,) = spec.prompts
    y = [named.slope * x + named.intercept for x in named.x]
    return [*found, _prompt("a prompt that is written down: every answer is recorded", named.x, y, 0)]


def _prompt(heading: str, x: Sequence[float], y: Sequence[float], first: int) -> Strip:
    names = [f"{'f(x' if odd else 'x'}{at + 1}{')' if odd else ''}" for at in range(len(x)) for odd in (0, 1)][:-1]
    values = [value for pair in zip(x, y, strict=True) for value in pair][:-1]
    read = [Cell(_short(value), "odd" if at == 0 else "") for at, value in enumerate(values)]
    places = range(len(values))
    scored = [at % 2 == 0 and at // 2 >= first for at in places]
    wanted = [Cell(_short(y[at // 2]), "mark") if scored[at] else None for at in places]
    return Strip(heading, [Row("", [Cell(name, "dim") for name in names]), Row("input", read), Row("f(x)", wanted)], 49)


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


LIMIT = 6.0
"""What the saturated predictor of the picture does not exceed."""


def _boundary(folder: Path) -> list[Panel]:
    del folder
    spec, a = BoundaryValues(slopes=(1.0,), x=tuple(map(float, range(-20, 21))), points=5, contexts=4), 1.0

    def saturated(inputs: Tensor, visible: Tensor | None = None, /) -> Tensor:
        del visible
        found = torch.zeros_like(inputs)
        x, y = inputs[:, ::2, 0], torch.nn.functional.pad(inputs[:, 1::2, 0], (0, 1))
        found[:, ::2, 0] = least_squares(x, y).clamp(-LIMIT, LIMIT).to(inputs.dtype)
        return found

    rows = [each for each in spec.open(LinearFunctions()).evaluate(saturated) if isinstance(each, Measurements)]
    swept = [(each.point["x"], each.value) for each in rows if each.name == "boundary_prediction"]
    told = [f"{each.name} {number(each.value)}" for each in rows if each.name != "boundary_prediction"]
    truth = Series("plain", [(x, a * x) for x in spec.x])
    x_label = "x, the last point of the prompt; the points before it stay"
    chart = Chart("", x_label, "prediction at x (unit of f(x))", [truth, Series("mark", swept)])
    return [chart, Words([f"at a = {a:g}: {'; '.join(told)}"])]


def _large(folder: Path) -> list[Panel]:
    del folder
    spec, task = LargeValue(values=(70.0,), numbers=8, sequences=1), Quantifiers()
    judge = spec.open(task)
    assert isinstance(judge, LargeValueJudge)
    found: list[Panel] = []
    for decides, words in (False, "the answer may be settled before it"), (True, "it alone decides"):
        x = judge.sequences(spec.values[0], decides=decides)
        answer = "yes" if running(task.quantifier, x)[0, -1] else "no"
        read = [Cell(_short(value)) for value in x[0, :-1].tolist()]
        rows = [
            Row("input", [*read, Cell(_short(spec.values[0]), "odd")]),
            Row("answer", [*[None] * len(read), Cell(answer, "mark")]),
        ]
        heading = f"decides = {int(decides)}, {words}: is every number positive? (true labels in between left out)"
        found.append(Strip(heading, rows, 49))
    return found


_DEVIANT = {"odd": "the first input, spread by sigma_first", "mark": "scored, or recorded"}

EVALUATIONS: Mapping[str, Drawing] = {
    "boundary_values": Drawing(
        write=lambda _: BoundaryValues(),
        task=lambda _: LinearFunctions(),
        panels=_boundary,
        legend={"plain": "f(x) = a x, a = 1", "mark": f"least squares cut off at ±{LIMIT:g}, judged by the evaluation"},
        title="what it finds where predictions have bounds",
    ),
    "deviant_inputs": Drawing(
        write=lambda _: DeviantInputs(),
        task=lambda _: LinearFunctions(),
        panels=_deviant,
        legend=_DEVIANT,
    ),
    "large_value": Drawing(
        write=lambda _: LargeValue(),
        task=lambda _: Quantifiers(),
        panels=_large,
        legend={"odd": "the last number", "mark": "the right answer to it"},
    ),
    "length_extrapolation": Drawing(
        write=lambda _: LengthExtrapolation(),
        task=texts.long_task,
        panels=texts.lengths,
        legend={"mark": "the last positions, compared across lengths"},
    ),
    "lm_eval": Drawing(
        write=texts.harness_spec,
        task=texts.long_task,
        panels=texts.harness,
        legend={"mark": "scored, or written"},
    ),
    "long_context": Drawing(
        write=texts.long_spec,
        task=texts.long_task,
        panels=texts.long,
        legend={"odd": "where the middle of the text is left out", "mark": "written"},
    ),
    "minimal_pairs": Drawing(
        write=texts.pairs_spec,
        task=lambda folder: MaskedText(source=str(folder / "text.jsonl")),
        panels=texts.pairs,
        legend={"mark": "masked and asked for"},
    ),
    "multiple_choice": Drawing(
        write=texts.choices_spec,
        task=texts.long_task,
        panels=texts.choices,
        legend={"mark": "the answer, whose tokens are scored"},
    ),
}


def drawing_of(kind: str) -> Drawing:
    """How a kind of evaluation is shown.

    Raises:
        SpecError: nobody has said.
    """
    if kind not in EVALUATIONS:
        raise SpecError(
            f"every evaluation has a picture; describe that of {kind!r} in runners/catalogue/evaluation_drawings.py"
        )
    return EVALUATIONS[kind]


def evaluation_picture(kind: str, folder: Path) -> str:
    """The SVG of a kind of evaluation; `materials` are in the folder."""
    drawing = drawing_of(kind)
    return picture(f"{kind}: {drawing.title}", drawing.panels(folder), drawing.legend)
