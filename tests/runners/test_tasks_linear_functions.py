"""Linear functions: what is drawn, and that oracles get the errors theory gives them."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from runners.tasks import Curriculum, LinearFunctions, ShiftGrid
from runners.tasks.linear_functions import SCORED_FROM, prompt, squared_errors


def nothing(inputs: Tensor) -> Tensor:
    """Predicts 0."""
    return torch.zeros_like(inputs)


def least_squares(inputs: Tensor) -> Tensor:
    """The line through all earlier points, at every x; 0 before there are two. Float64 throughout."""
    sequence = torch.cat((inputs[..., 0], torch.zeros(len(inputs), 1)), 1).double()
    x, y = sequence[:, ::2], sequence[:, 1::2]
    predicted = torch.zeros(inputs.shape, dtype=torch.float64)
    for position in range(2, x.shape[1]):
        design = torch.stack((x[:, :position], torch.ones_like(x[:, :position])), -1)
        line = torch.linalg.lstsq(design, y[:, :position, None]).solution
        predicted[:, 2 * position, 0] = line[:, 0, 0] * x[:, position] + line[:, 1, 0]
    return predicted


def test_a_prompt_alternates_and_leaves_out_the_last_value() -> None:
    x, y = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[10.0, 20.0, 30.0]])
    assert prompt(x, y)[0, :, 0].tolist() == [1, 10, 2, 20, 3]


def test_every_sequence_lies_on_a_line() -> None:
    batch = LinearFunctions(points=7, batch=50).open().batch(seed=1, step=2)
    x, y = batch.inputs[:, ::2, 0].double(), batch.targets.double()
    assert torch.equal(batch.inputs[:, 1::2, 0], batch.targets[:, :-1])
    design = torch.stack((x, torch.ones_like(x)), -1)
    line = torch.linalg.lstsq(design, y[..., None]).solution
    assert torch.allclose((design @ line)[..., 0], y, atol=1e-5)


def test_training_draws_have_the_spreads_of_the_task() -> None:
    batch = LinearFunctions(points=2, batch=100_000, sigma_x=3, sigma_f=0.5).open().batch(seed=1, step=1)
    assert batch.inputs[:, ::2].std() == pytest.approx(3, rel=0.02)
    assert batch.targets.square().mean() == pytest.approx(0.5**2 * (3**2 + 1), rel=0.02)


def test_a_batch_follows_from_seed_and_step_alone() -> None:
    data = LinearFunctions(points=5).open()
    first = data.batch(seed=4, step=9)
    data.batch(seed=4, step=10)
    again = LinearFunctions(points=5).open().batch(seed=4, step=9)
    assert torch.equal(first.inputs, again.inputs)
    for other in (data.batch(seed=5, step=9), data.batch(seed=4, step=10)):
        assert not torch.equal(first.inputs, other.inputs)


def test_a_curriculum_lengthens_the_same_sequences() -> None:
    plain = LinearFunctions(points=9)
    grown = plain.changed(curriculum=Curriculum(start=3, every=10, increment=4))
    assert [grown.points_at(step) for step in (1, 10, 11, 20, 21, 1000)] == [3, 3, 7, 7, 9, 9]
    short, full = grown.open().batch(2, 10), plain.open().batch(2, 10)
    assert torch.equal(short.targets, full.targets[:, :3])
    assert torch.equal(short.inputs, full.inputs[:, :5])


def test_the_loss_is_the_mean_squared_error_over_all_points() -> None:
    data = LinearFunctions(points=3, batch=1).open()
    outputs = torch.tensor([1.0, 99.0, 2.0, 99.0, 4.0])[None, :, None]
    assert data.loss(outputs, torch.tensor([[0.0, 0.0, 1.0]])).item() == pytest.approx((1 + 4 + 9) / 3)


@pytest.mark.parametrize(("sigma_x", "sigma_f"), [(1.0, 1.0), (1.0, 7.0), (4.0, 2.0)])
def test_predicting_nothing_costs_what_theory_says(sigma_x: float, sigma_f: float) -> None:
    """E[(a x + b)^2] = sigma_f^2 (sigma_x^2 + 1)."""
    grid = ShiftGrid(sigma_x=(sigma_x,), sigma_f=(sigma_f,), functions=4000, sequences=4, points=12)
    errors = squared_errors(nothing, grid, sigma_x, sigma_f)
    assert errors.mean().item() == pytest.approx(sigma_f**2 * (sigma_x**2 + 1), rel=0.06)


def test_least_squares_is_exact_from_the_third_point_on() -> None:
    errors = squared_errors(least_squares, ShiftGrid(functions=20, sequences=4, points=6), 1, 5)
    assert errors.shape == (20, 6)
    assert errors[:, :2].mean() > 1
    assert errors[:, SCORED_FROM:].median() < 1e-6


def test_a_prediction_sees_no_later_token() -> None:
    seen: list[Tensor] = []

    def remember(inputs: Tensor) -> Tensor:
        seen.append(inputs)
        return nothing(inputs)

    squared_errors(remember, ShiftGrid(functions=2, sequences=3, points=7), 1, 1)
    assert torch.cat(seen).shape == (6, 13, 1)


def test_a_sigma_scales_the_draws_and_changes_nothing_else() -> None:
    grid = ShiftGrid(functions=5, sequences=2, points=4)
    once, thrice = squared_errors(nothing, grid, 1, 1), squared_errors(nothing, grid, 1, 3)
    assert torch.allclose(thrice, 9 * once)


def test_more_prompts_or_points_leave_the_functions_as_they_were() -> None:
    few = ShiftGrid(functions=3, sequences=2, points=4)
    intercepts = squared_errors(nothing, few, 1e-9, 1)[:, 0]
    assert torch.allclose(intercepts, squared_errors(nothing, few.changed(sequences=9, points=8), 1e-9, 1)[:, 0])
    assert not torch.allclose(intercepts, squared_errors(nothing, few.changed(sample=1), 1e-9, 1)[:, 0])


def test_the_summary_is_the_mean_of_the_scored_positions_with_its_error_over_functions() -> None:
    grid = ShiftGrid(sigma_x=(1, 2), sigma_f=(1, 3), functions=8, sequences=2, points=6, per_position=((2, 3),))
    found = list(LinearFunctions(points=6, evaluation=grid).open().evaluate(nothing))
    summaries = {(m.point["sigma_x"], m.point["sigma_f"]): m for m in found if m.name == "mse"}
    assert set(summaries) == {(1, 1), (1, 3), (2, 1), (2, 3)}
    positions = {m.point["position"]: m for m in found if m.name == "squared_error"}
    assert sorted(positions) == [1, 2, 3, 4, 5, 6]
    assert all(m.point["sigma_x"] == 2 and m.point["sigma_f"] == 3 for m in positions.values())
    summary, errors = summaries[2, 3], squared_errors(nothing, grid, 2, 3)
    assert summary.value == pytest.approx(sum(positions[p].value for p in (4, 5, 6)) / 3)
    per_function = errors[:, 3:].mean(1)
    assert summary.items == 8
    assert summary.se_items == pytest.approx((per_function.std() / 8**0.5).item())


def test_one_function_has_no_standard_error() -> None:
    grid = ShiftGrid(sigma_x=(1,), sigma_f=(1,), functions=1, sequences=2, points=4)
    assert {m.se_items for m in LinearFunctions(points=4, evaluation=grid).open().evaluate(nothing)} == {None}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sigma_f": (1, 3, 2)}, "sigma_f rises from value to value"),
        ({"sigma_x": (1, 1)}, "sigma_x rises from value to value"),
        ({"sigma_x": ()}, "at least 1 item"),
        ({"sigma_f": (0,)}, "greater than 0"),
        ({"points": 3}, "greater than 3"),
        ({"per_position": ((1, 11),)}, r"names conditions \(sigma_x, sigma_f\) of the grid; got \(1.0, 11.0\)"),
    ],
)
def test_a_grid_without_meaning_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ShiftGrid.model_validate(fields)


def test_a_curriculum_that_starts_at_the_end_is_refused() -> None:
    with pytest.raises(ValidationError, match="fewer points than the task's 11; got 11"):
        LinearFunctions(points=11, curriculum=Curriculum())


def test_the_longest_sequence_is_that_of_training_or_of_evaluation() -> None:
    assert LinearFunctions(points=11).length == 79
    assert LinearFunctions(points=50).length == 99
