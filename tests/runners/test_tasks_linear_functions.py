"""Linear functions and quantifiers: what is drawn, against plain Python, and errors of predictors by theory."""

import math
from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.training.optimisers import Training
from ablate.training.tasks import Curriculum, LengthGrid, LinearFunctions, Measurements, Quantifiers, ShiftGrid
from ablate.training.tasks.synthetic.linear_functions import evaluation_points, least_squares as closed_form
from ablate.training.tasks.synthetic.quantifiers import Quantifier, balanced_accuracy
from ablate.training.trial import Trial
from ablate.variants import Operator, Scalars, affine_scaled, cosformer, gpt2, softmax
from ablate.variants.model.named_backbones import tiny
from ablate.variants.model.transformer import Transformer


def nothing(inputs: Tensor) -> Tensor:
    return torch.zeros_like(inputs)


def test_every_sequence_lies_on_a_line() -> None:
    batch = LinearFunctions(points=7, batch=50).open().batch(seed=1, step=2)
    x, y = batch.inputs[:, ::2, 0].double(), batch.targets.double()
    assert torch.equal(batch.inputs[:, 1::2, 0], batch.targets[:, :-1])
    design = torch.stack((x, torch.ones_like(x)), -1)
    line = torch.linalg.lstsq(design, y[..., None]).solution
    assert torch.allclose((design @ line)[..., 0], y, atol=1e-5)


def test_the_closed_form_is_the_solution_of_least_norm() -> None:
    """With noise, so that no line fits; one point and points above each other included."""
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.randn(50, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x[:10, :3] = x[:10, :1]
    found = closed_form(x, y)
    assert found[:, 0].tolist() == [0] * 50
    for seen in range(1, 7):
        design = torch.stack((x[:, :seen], torch.ones_like(x[:, :seen])), -1)
        line = torch.linalg.pinv(design, rtol=1e-12) @ y[:, :seen, None]
        expected = line[:, 0, 0] * x[:, seen] + line[:, 1, 0]
        torch.testing.assert_close(found[:, seen], expected, rtol=1e-8, atol=1e-9)


def test_the_closed_form_makes_no_error_at_all_from_the_third_point_on() -> None:
    whole = [torch.randint(-99, 99, (500, n), generator=torch.Generator().manual_seed(n)).float() for n in (1, 2, 9)]
    slope, x = whole[0], whole[2]
    x[:, 1] += (x[:, 1] == x[:, 0]).float()
    y = slope * x + whole[1][:, :1]
    assert torch.equal(closed_form(x, y)[:, 2:], y[:, 2:].double())
    assert not torch.equal(closed_form(x, y)[:, :2], y[:, :2].double())


def test_reference_rows_are_the_errors_of_predictors_on_the_same_prompts() -> None:
    grid = ShiftGrid(sigma_x=(1, 2), sigma_f=(1, 3), functions=30, sequences=4, points=7)
    rows = LinearFunctions(evaluation=grid).open().evaluate(nothing)
    found = {(each.name, *each.point.values()): each for each in rows if "position" not in each.point}
    assert len(found) == 4 * 4
    for sigma_x, sigma_f in grid.conditions():
        mse, zero = found["mse", sigma_x, sigma_f], found["zero.mse", sigma_x, sigma_f]
        assert (zero.value, zero.se_items) == (pytest.approx(mse.value), pytest.approx(mse.se_items))
        relative = mse.value / (sigma_f**2 * (sigma_x**2 + 1))
        assert found["relative_mse", sigma_x, sigma_f].value == pytest.approx(relative)
        assert 0 < found["least_squares.mse", sigma_x, sigma_f].value < 1e-9 * zero.value


def test_the_summary_is_the_mean_of_the_scored_positions_with_its_error_over_functions() -> None:
    grid = ShiftGrid(sigma_x=(1, 2), sigma_f=(1, 3), functions=8, sequences=2, points=6, per_position=((2, 3),))
    found = list(LinearFunctions(points=6, evaluation=grid).open().evaluate(nothing))
    summaries = {(m.point["sigma_x"], m.point["sigma_f"]): m for m in found if m.name == "mse"}
    assert set(summaries) == {(1, 1), (1, 3), (2, 1), (2, 3)}
    positions = {m.point["position"]: m for m in found if m.name == "squared_error"}
    assert sorted(positions) == [1, 2, 3, 4, 5, 6]
    assert all(m.point["sigma_x"] == 2 and m.point["sigma_f"] == 3 for m in positions.values())
    summary, errors = summaries[2, 3], evaluation_points(grid, 2, 3)[1].double().square().mean(1)
    assert summary.value == pytest.approx(sum(positions[p].value for p in (4, 5, 6)) / 3)
    per_function = errors[:, 3:].mean(1)
    assert summary.items == 8
    assert summary.se_items == pytest.approx((per_function.std() / 8**0.5).item())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sigma_f": (1, 3, 2)}, "rise from value to value"),
        ({"points": 3}, "greater than 3"),
        ({"per_position": ((1, 2), (1, 1), (1, 2))}, r"names \(1.0, 2.0\) twice"),
        ({"per_position": ((1, 11),)}, r"names \(1.0, 11.0\), which is no condition"),
    ],
)
def test_a_grid_without_meaning_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ShiftGrid.model_validate(fields)


def test_conditions_recorded_by_position_are_one_grid_in_any_order_and_the_first_need_not_be_named() -> None:
    grid = ShiftGrid(sigma_x=(1, 2), sigma_f=(1, 3))
    assert grid.changed(per_position=((1, 1),)) == grid
    assert grid.changed(per_position=()) != grid
    first, second = (grid.changed(per_position=each) for each in (((2, 1), (1, 3)), ((1, 3), (2, 1))))
    assert first == second != grid
    assert first.by_position() == ((1, 3), (2, 1))
    task = LinearFunctions(evaluation=first.changed(functions=2, sequences=1, points=4))
    rows = [m.point for m in task.open().evaluate(nothing) if m.name == "squared_error"]
    assert rows == task.measures()["squared_error"]


@pytest.mark.parametrize(
    "curriculum",
    [Curriculum(), Curriculum(start=39, every=1, increment=9), Curriculum(start=1, every=3, increment=2)],
    ids=lambda curriculum: curriculum.canonical,
)
def test_a_curriculum_that_training_ends_before_is_refused_with_the_steps_that_it_takes(curriculum: Curriculum) -> None:
    task = LinearFunctions(curriculum=curriculum, evaluation=ShiftGrid(points=4))
    first = next(step for step in range(1, 40_000) if task.points_at(step) == 40)
    whole = Trial(task=task, model=tiny("gpt2"), operator=softmax(), training=Training(steps=first))
    assert whole.task == task
    with pytest.raises(SpecError, match=rf"does not reach 40 points .* train {first} steps"):
        whole.changed(training=Training(steps=first - 1))
    whole.changed(task=task.changed(curriculum=None), training=Training(steps=1))


def test_the_loss_is_the_mean_squared_error_over_all_points() -> None:
    data = LinearFunctions(points=3, batch=1).open()
    outputs = torch.tensor([1.0, 99.0, 2.0, 99.0, 4.0])[None, :, None]
    assert data.loss(outputs, torch.tensor([[0.0, 0.0, 1.0]])).item() == pytest.approx((1 + 4 + 9) / 3)


QUANTIFIERS: tuple[Quantifier, ...] = ("every", "some")
PLAIN = {"every": all, "some": any}
SMALL = LengthGrid(lengths=(4, 7, 12), sigma=(1, 5), sequences=300)


def predict_constant(value: float) -> Callable[[Tensor], Tensor]:
    return lambda inputs: torch.full_like(inputs, value)


def by_point(task: Quantifiers, predict: Callable[[Tensor], Tensor]) -> dict[tuple[str, float, float], Measurements]:
    found = task.open().evaluate(predict)
    return {(each.name, each.point["length"], each.point["sigma"]): each for each in found}


@pytest.mark.parametrize("quantifier", QUANTIFIERS)
def test_a_label_is_what_plain_python_says_of_the_numbers_so_far(quantifier: Quantifier) -> None:
    batch = Quantifiers(quantifier=quantifier, points=9, batch=200, sigma=3).open().batch(seed=1, step=2)
    x = batch.inputs[:, ::2, 0].tolist()
    expected = [[float(PLAIN[quantifier](each > 0 for each in row[: i + 1])) for i in range(9)] for row in x]
    assert batch.targets.tolist() == expected
    assert batch.inputs[:, 1::2, 0].tolist() == [[2 * label - 1 for label in row[:-1]] for row in expected]
    assert {label for row in expected for label in row} == {0, 1}


@pytest.mark.parametrize("labels", ["shown", "hidden"])
@pytest.mark.parametrize(("quantifier", "usual", "name"), [("every", -1.0, "false"), ("some", 1.0, "true")])
def test_the_usual_constant_errs_once_in_sixteen(quantifier: Quantifier, labels: str, usual: float, name: str) -> None:
    """It errs where the first four numbers have one sign, 2^-4; the other constant unless all have, 1 - 2^-n."""
    grid = LengthGrid(lengths=(4, 5, 30), sigma=(1, 9), sequences=20_000)
    task = Quantifiers.model_validate({"quantifier": quantifier, "labels": labels, "evaluation": grid, "points": 5})
    other = {"true": "false", "false": "true"}[name]
    found, flipped = by_point(task, predict_constant(usual)), by_point(task, predict_constant(-usual))
    for length in grid.lengths:
        for sigma in grid.sigma:
            rate = found["error_rate", length, sigma]
            assert rate.value == pytest.approx(1 / 16, abs=4 * math.sqrt(15 / 256 / 20_000))
            assert rate.se_items == pytest.approx(math.sqrt(15 / 256 / 20_000), rel=0.05)
            assert found[f"always_{name}.error_rate", length, sigma] == rate._replace(name=f"always_{name}.error_rate")
            most = flipped["error_rate", length, sigma].value
            assert most == pytest.approx(1 - 2.0**-length, abs=0.007)
            assert found[f"always_{other}.error_rate", length, sigma].value == most
            balanced = found["balanced_accuracy", length, sigma]
            assert (balanced.value, balanced.se_items) == (0.5, pytest.approx(0, abs=1e-12))


@pytest.mark.parametrize("quantifier", QUANTIFIERS)
def test_who_reads_the_prompt_makes_no_error(quantifier: Quantifier) -> None:
    """With labels shown, the last label and the number are enough: y_i = y_(i-1) and x_i > 0."""

    def reader(inputs: Tensor) -> Tensor:
        number, label = inputs[..., 0] > 0, torch.roll(inputs[..., 0], 1, 1) > 0
        label[:, 0] = quantifier == "every"
        right = (number & label) if quantifier == "every" else (number | label)
        return (2.0 * right - 1)[..., None]

    found = by_point(Quantifiers(quantifier=quantifier, evaluation=SMALL), reader)
    for length in SMALL.lengths:
        assert found["error_rate", length, 5].value == 0
        assert found["balanced_accuracy", length, 5].value == 1


@pytest.mark.parametrize("labels", ["shown", "hidden"])
@pytest.mark.parametrize("attention", [cosformer(), affine_scaled(n="context")], ids=lambda operator: operator.label)
def test_a_length_is_judged_as_if_no_other_were(attention: Operator, labels: str) -> None:
    """Weights that depend on how many numbers follow do so at the length that is asked about."""
    assert "prefix" in attention.breaks
    torch.manual_seed(0)
    backbone = gpt2(layers=1, heads=2, width=8, max_positions=32)
    model = Transformer(backbone, operators=(attention,), inputs=Scalars(1), seed=0).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    task = Quantifiers.model_validate({"labels": labels, "evaluation": SMALL})

    @torch.inference_mode()
    def predict(inputs: Tensor) -> Tensor:
        outputs = model(inputs)
        return outputs - outputs.median()

    whole = by_point(task, predict)
    for length in SMALL.lengths:
        alone = by_point(task.changed(evaluation=SMALL.changed(lengths=(length,))), predict)
        assert {point: each for point, each in whole.items() if point[1] == length} == alone


@pytest.mark.parametrize("quantifier", QUANTIFIERS)
def test_nan_is_never_right(quantifier: Quantifier) -> None:
    found = by_point(Quantifiers(quantifier=quantifier, evaluation=SMALL), predict_constant(math.nan))
    assert {each.value for (name, *_), each in found.items() if name == "error_rate"} == {1}
    assert {each.value for (name, *_), each in found.items() if name == "balanced_accuracy"} == {0}


def test_balanced_accuracy_is_that_of_a_table_counted_by_hand() -> None:
    labels = torch.tensor([[True, False, False], [True, True, False]])
    answers = torch.tensor([[True, True, False], [False, True, False]])
    found = balanced_accuracy(answers, labels, {})
    assert found.value == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert math.isnan(balanced_accuracy(answers, torch.ones_like(labels), {}).value)
    assert balanced_accuracy(answers[:1], labels[:1], {}).se_items is None


def test_the_loss_is_the_binary_cross_entropy_over_all_positions() -> None:
    logits, labels = torch.tensor([[0.5, -2.0, 3.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    expected = -(labels * logits.sigmoid().log() + (1 - labels) * (1 - logits.sigmoid()).log()).mean().item()
    shown = torch.tensor([0.5, 99.0, -2.0, 99.0, 3.0])[None, :, None]
    for data, outputs in ((Quantifiers(points=3), shown), (Quantifiers(points=3, labels="hidden"), logits[..., None])):
        assert data.open().loss(outputs, labels).item() == pytest.approx(expected)
