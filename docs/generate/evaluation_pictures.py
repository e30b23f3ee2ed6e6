"""Pictures of evaluations: the sequences that they show to a model, or what they find for a simple predictor."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import torch
from figures import Cell, Chart, Lines, Panel, Strip, draw_picture, number_words
from task_pictures import WINDOW, make_small_text, token_symbol
from torch import Tensor

from runners.catalogue.explain_choice import EXAMPLES
from runners.evaluations import BoundaryValues, DeviantInputs, Evaluation, LargeValue, LengthExtrapolation, LongContext
from runners.evaluations.deviant_inputs import DeviantInputsJudge
from runners.evaluations.large_value import LargeValueJudge
from runners.tasks import LinearFunctions, Measurements, Quantifiers, Task
from runners.tasks.synthetic.in_context import SCORED_FROM
from runners.tasks.synthetic.linear_functions import least_squares
from runners.tasks.synthetic.quantifiers import running
from runners.tasks.text.encoder import Encodes

_LIMIT: Final = 6.0
"""Bound of the predictions in the picture of boundary values."""


def _deviant_inputs(_: Path) -> list[Panel]:
    spec = DeviantInputs(sigma=(1.0, 10.0, 100.0), functions=1, sequences=1, points=6)
    judge = spec.open(LinearFunctions())
    assert isinstance(judge, DeviantInputsJudge)
    panels: list[Panel] = []
    for sigma in spec.sigma:
        x, y = (each[0, 0].tolist() for each in judge.prompts(sigma))
        panels.append(_prompt_strip(f"sigma_first = {sigma:g}", x, y, SCORED_FROM))
    (prompt,) = spec.prompts
    y = [prompt.slope * x + prompt.intercept for x in prompt.x]
    return [*panels, _prompt_strip("a fixed prompt: every answer is recorded", prompt.x, y, 0)]


def _prompt_strip(heading: str, x: Sequence[float], y: Sequence[float], first: int) -> Strip:
    names = [name for at in range(1, len(x) + 1) for name in (f"x{at}", f"f(x{at})")][:-1]
    values = [value for pair in zip(x, y, strict=True) for value in pair][:-1]
    is_scored = [at % 2 == 0 and at // 2 >= first for at in range(len(values))]
    rows = {
        "": [Cell(name, "dim") for name in names],
        "input": [Cell(_short(value), "" if at else "odd") for at, value in enumerate(values)],
        "f(x)": [Cell(_short(y[at // 2]), "mark") if scored else None for at, scored in enumerate(is_scored)],
    }
    return Strip(heading, rows, size=0.46)


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _boundary_values(_: Path) -> list[Panel]:
    spec = BoundaryValues(slopes=(1.0,), x=tuple(map(float, range(-20, 21))), points=5, contexts=4)

    def predict(inputs: Tensor, visible: Tensor | None = None, /) -> Tensor:  # noqa: ARG001
        outputs = torch.zeros_like(inputs)
        x, y = inputs[:, ::2, 0], torch.nn.functional.pad(inputs[:, 1::2, 0], (0, 1))
        outputs[:, ::2, 0] = least_squares(x, y).clamp(-_LIMIT, _LIMIT).to(inputs.dtype)
        return outputs

    rows = [each for each in spec.open(LinearFunctions()).evaluate(predict) if isinstance(each, Measurements)]
    points = [(each.point["x"], round(each.value, 4)) for each in rows if each.name == "boundary_prediction"]
    lines = {"plain": (spec.x, spec.x), "mark": tuple(zip(*points, strict=True))}
    chart = Chart("x, the last point of the prompt; the points before it stay", "prediction at x", lines=lines)
    words = [f"{each.name} {number_words(each.value)}" for each in rows if each.name != "boundary_prediction"]
    return [chart, Lines([f"at a = 1: {'; '.join(words)}"])]


def _large_value(_: Path) -> list[Panel]:
    spec, task = LargeValue(values=(70.0,), numbers=8, sequences=1), Quantifiers()
    judge = spec.open(task)
    assert isinstance(judge, LargeValueJudge)
    panels: list[Panel] = []
    for decides, words in (False, "earlier numbers may settle the answer"), (True, "it alone decides"):
        x = judge.sequences(spec.values[0], decides=decides)
        answer = "yes" if running(task.quantifier, x)[0, -1] else "no"
        numbers = [Cell(_short(value)) for value in x[0, :-1].tolist()]
        rows: dict[str, list[Cell | None]] = {
            "input": [*numbers, Cell(_short(spec.values[0]), "odd")],
            "answer": [*[None] * len(numbers), Cell(answer, "mark")],
        }
        panels.append(Strip(f"decides = {int(decides)}, {words}: is every number positive?", rows, size=0.46))
    return panels


class Recorder:
    """A model that keeps its inputs, gives all tokens the same probability, and writes `answer`."""

    def __init__(self, answer: Sequence[int] = ()) -> None:
        self.batches: list[Tensor] = []
        self._answer = answer

    def __call__(self, inputs: Tensor, visible: Tensor | None = None, /) -> Tensor:  # noqa: ARG002
        """Return logits [B, T, 256]."""
        self.batches.append(inputs.clone())
        logits = torch.zeros(*inputs.shape, 256)
        if len(self.batches) <= len(self._answer):
            logits[..., self._answer[len(self.batches) - 1]] = 1.0
        return logits


def _record_inputs(evaluation: Evaluation, task: Task, answer: Sequence[int] = ()) -> list[Tensor]:
    recorder = Recorder(answer)
    for _ in evaluation.open(task).evaluate(recorder):
        pass
    return recorder.batches


def _token_cells(task: Task, tokens: Sequence[int], marked: slice = slice(0)) -> list[Cell]:
    assert isinstance(task, Encodes)
    styles = [""] * len(tokens)
    styles[marked] = ["mark"] * len(styles[marked])
    return [Cell(token_symbol(task.encoder(), token), style) for token, style in zip(tokens, styles, strict=True)]


def _length_extrapolation(folder: Path) -> list[Panel]:
    task, last = make_small_text(folder), 4
    spec = LengthExtrapolation(lengths=(5, 10, WINDOW), count=1, last=last, bucket=5)
    rows: dict[str, list[Cell | None]] = {}
    for batch in _record_inputs(spec, task):
        tokens = batch[0].tolist()
        cells = _token_cells(task, tokens, slice(-last, None))
        rows[f"length {len(tokens)}"] = [*[None] * (WINDOW - len(tokens)), *cells]
    return [Strip("one window at each length; last=4", rows)]


def _long_context(folder: Path) -> list[Panel]:
    task, answer, context, new_tokens = make_small_text(folder), b"one\0", 61, 5
    spec = EXAMPLES["long_context"](folder)
    assert isinstance(spec, LongContext)
    spec = spec.changed(context=context, new_tokens=new_tokens, template="{context}\n{input}\n")
    tokens = _record_inputs(spec, task, answer)[-1][0].tolist()
    cells = [*_token_cells(task, tokens, slice(len(tokens) - len(answer) + 1, None)), Cell("⊣", "mark")]
    cells.insert(1 + (context - new_tokens - 1) // 2, Cell("...", "odd"))
    return [Strip("what the model has read and written at the end of its document", {"": cells})]


PICTURES: Final[Mapping[str, tuple[Callable[[Path], list[Panel]], Mapping[str, str]]]] = {
    "boundary_values": (
        _boundary_values,
        {"plain": "f(x) = a x, a = 1", "mark": f"least squares, clipped at ±{_LIMIT:g}, judged by the evaluation"},
    ),
    "deviant_inputs": (
        _deviant_inputs,
        {"odd": "the first input, with spread sigma_first", "mark": "scored, or recorded"},
    ),
    "large_value": (_large_value, {"odd": "the last number", "mark": "its right answer"}),
    "length_extrapolation": (_length_extrapolation, {"mark": "the last positions, compared across lengths"}),
    "long_context": (_long_context, {"odd": "the middle of the text is left out here", "mark": "written"}),
}
"""Panels and legends; evaluations of short texts have no picture."""


def draw_evaluation(kind: str, folder: Path) -> str:
    """Draw the picture of an evaluation as SVG. `folder` holds the fixture files."""
    make_panels, legend = PICTURES[kind]
    title = "predictions of a clipped predictor" if kind == "boundary_values" else "inputs of the model"
    return draw_picture(f"{kind}: {title}", make_panels(folder), legend)
