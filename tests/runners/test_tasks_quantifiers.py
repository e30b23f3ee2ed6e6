"""Quantifiers: labels against plain Python, constants against closed forms, and that a model learns them."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ablate.runners.tasks import LengthGrid, Measurements, Quantifiers
from ablate.runners.tasks.synthetic.quantifiers import Quantifier, balanced_accuracy
from ablate.variants import Operator, Scalars, affine_scaled, cosformer, gpt2
from ablate.variants.model.transformer import Transformer

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
