"""Uniform attention, a refit and means of numbers: what is planned and measured beside knock-outs."""

import copy
import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from small_grammar import TRIAL, Recorder, asking, run
from torch import Tensor

from ablate import AdamW, Cosine, Trial
from ablate.grid import Grid, Measure, over
from ablate.runners.planning.worklist import plan_knockouts
from ablate.training.evaluations.knockout import Knockout
from ablate.training.loop.knockout import Subject, knock_out
from ablate.training.loop.number_means import use_means
from ablate.training.loop.train import train
from ablate.training.trial import build_model
from ablate.variants import (
    LogCount,
    Number,
    Operator,
    Transformer,
    differential,
    fox,
    gated_heads,
    gpt2,
    integral,
    principled,
    qk_norm,
    softmax,
    ssa,
)
from ablate.variants.model.knockout import changed_stages, components

LOSS = Measure(name="loss", scale="linear", rope=0.03)
MEASURED = "validation_loss"


def evaluate(trial: Trial, model: Transformer) -> float:
    with torch.inference_mode():
        return next(row.value for row in trial.task.open().evaluate(model.eval()) if row.name == MEASURED)


def load(trial: Trial, weights: Mapping[str, Tensor]) -> Transformer:
    model = build_model(trial)
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    return model


def changes(trial: Trial, model: Transformer, asked: Knockout) -> dict[str, float]:
    """Knock a model out as training does, and name the changes."""
    trial = trial.changed(execution=trial.execution.changed(knockout=asked))
    with torch.inference_mode():
        rows = list(knock_out(Subject(trial, model.eval(), trial.task.open(), [], model), lambda _: None))
    return {row.name.split(".")[1]: row.value for row in rows}


def test_a_baseline_is_compared_with_uniform_attention() -> None:
    plain = TRIAL.changed(operator=softmax())
    found = run(asking(plain, MEASURED)).knocked()
    assert found.keys() == {f"knockout.{each}.{MEASURED}" for each in ("none", "uniform")}
    assert found[f"knockout.uniform.{MEASURED}"][4] == 24
    assert found[f"knockout.uniform.{MEASURED}"][5] > 0


def test_uniform_attention_is_that_of_queries_that_are_zero() -> None:
    trial, model = moved(softmax())
    blind = copy.deepcopy(model)
    with torch.no_grad():
        for block in blind.blocks():
            block.attention.qkv.weight[:16] = 0  # queries
            block.attention.qkv.bias[:16] = 0
    found = changes(trial, model, Knockout(name=MEASURED))
    expected = evaluate(trial, blind) - evaluate(trial, model)
    assert found["uniform"] == pytest.approx(expected, rel=1e-3)
    assert abs(expected) > 1e-4


WARM = softmax().changed(transform={"kind": "temperature", "tau": {"init": 4.0, "link": "positive"}})
LONGER = TRIAL.changed(
    task=TRIAL.task.changed(batch=32, validation_windows=64),
    model=gpt2(layers=2, heads=2, width=16, max_positions=64),
    training=TRIAL.training.changed(steps=200, optimiser=AdamW(lr=1e-2), schedule=Cosine(warmup=10)),
)


@pytest.mark.parametrize("operator", [WARM, integral(signals=4)], ids=["temperature", "integral"])
def test_what_is_a_temperature_returns_in_the_refit(operator: Operator) -> None:
    found = run(asking(LONGER.changed(operator=operator), MEASURED, changed_stages(operator)))
    rows = {name.split(".")[1]: row[2] for name, row in found.knocked().items()}
    assert rows["all"] > 0.03
    assert abs(rows["refit"]) <= 0.002


@pytest.mark.parametrize("operator", [WARM, integral(signals=4)], ids=["temperature", "integral"])
def test_what_is_a_temperature_returns_in_a_refit_of_its_own(operator: Operator) -> None:
    """A gate beside it is no temperature: it stays where the temperature goes alone, and is missed where it goes."""
    gated = LONGER.changed(operator=operator.changed(name="", output_gate=gated_heads().output_gate))
    parts = components(gated.operator)
    asked = Knockout(name=MEASURED, sets=(*parts, changed_stages(gated.operator)))
    weights = run(gated).weights
    alone = asked.refits()
    assert alone is not None
    assert alone.sets == parts
    rows = {**changes(gated, load(gated, weights), asked), **changes(gated, load(gated, weights), alone)}
    (scale,) = (part for part in parts if part != ("output_gate",))
    assert rows["+".join(scale)] > 0.03
    assert rows[f"refit-{'+'.join(scale)}"] <= 0.002
    assert 0.002 < rows["refit-output_gate"] < rows["output_gate"]
    assert rows["refit"] > 0.002


def test_what_is_no_temperature_does_not_return() -> None:
    rows = {
        name.split(".")[1]: row[2]
        for name, row in run(asking(LONGER.changed(operator=fox(forget=0.9)), MEASURED, ["forgetting"]))
        .knocked()
        .items()
    }
    assert rows["all"] > rows["refit"] > 0.03


def test_a_refit_costs_seconds_of_its_own() -> None:
    ended = train(asking(TRIAL, MEASURED, ["forgetting"]), Recorder())
    assert 0 < ended.cost["refit_s"] < ended.evaluate_s
    assert "refit_s" not in train(asking(TRIAL.changed(operator=softmax()), MEASURED), Recorder()).cost


@pytest.mark.parametrize("measure", [MEASURED, "agreement_accuracy", "loss"])
def test_outputs_that_are_not_finite_are_nan_and_no_crash(measure: str) -> None:
    """Products of 1e50 overflow without the norm of queries and keys; an accuracy of NaN would be a finite number."""
    normed = TRIAL.changed(operator=qk_norm())
    model = build_model(normed)
    with torch.no_grad():
        for block in model.blocks():
            block.attention.qkv.weight[:32] *= 1e25
    found = changes(normed, model, Knockout(name=measure, sets=(("preparation",),)))
    assert found.keys() == {"none", "preparation", "all", "uniform", "refit"}
    assert all(math.isnan(found[each]) for each in ("preparation", "all", "refit"))
    assert math.isfinite(found["none"])
    assert math.isfinite(found["uniform"])


def margin(per: Any, *, learned: bool | None = None) -> Operator:
    return Operator(margin=LogCount(amplification=Number(init=0.0, per=per, learned=learned)))


def moved(operator: Operator) -> tuple[Trial, Transformer]:
    """A model whose numbers are away from their start and differ by layer, head and query."""
    trial = TRIAL.changed(operator=operator)
    model, drawn = build_model(trial).eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.number_parameters():
            parameter.add_(torch.randn(parameter.shape, generator=drawn))
        for block in model.blocks():
            block.attention.qkv.weight.mul_(8)  # so that attention is far from uniform
    return trial, model


def seen_numbers(trial: Trial, model: Transformer) -> Tensor:
    """The margin's number on all tokens of the last batches [layers, heads, tokens], by traces."""
    data, found = trial.task.open(), []
    for step in (3, 4, 5, 6):
        with torch.inference_mode():
            traces = model.trace_layers(data.batch(trial.seed, step).inputs)
            numbers = [trace.worked.numbers["margin.amplification"] for trace in traces]
        found.append(torch.stack([each.expand(8, -1, 16, -1).transpose(0, 1).flatten(1) for each in numbers]))
    return torch.cat(found, -1)


@pytest.mark.parametrize(
    ("per", "left", "over"),
    [
        ("query", ("layer", "head"), (2,)),
        ("query", ("layer",), (1, 2)),
        ("query", (), (0, 1, 2)),
        ("head", ("layer",), (1, 2)),
        ("head", (), (0, 1, 2)),
        ("layer", (), (0, 1, 2)),
    ],
)
def test_finer_numbers_are_replaced_by_their_mean_over_what_is_shared(
    per: str, left: tuple[Any, ...], over: tuple[int, ...]
) -> None:
    """The oracle is a model that has these means as its numbers, per layer and head."""
    trial, model = moved(margin(per))
    mean = seen_numbers(trial, model).mean(over, keepdim=True).expand(2, 2, 1)
    coarse = build_model(trial.changed(operator=margin("head"))).eval()
    weights = dict(model.state_dict())
    for layer, each in enumerate(mean):
        weights[f"layers.{layer}.attention.numbers.table.margin_amplification"] = each.view(1, 2, 1, 1)
    coarse.load_state_dict({name: weights[name] for name in coarse.state_dict()})
    expected = evaluate(trial, coarse) - evaluate(trial, model)
    found = changes(trial, model, Knockout(name=MEASURED, means={"margin-level.amplification": left}))
    assert found["mean-margin-level"] == pytest.approx(expected, rel=1e-3, abs=2e-6)
    assert abs(expected) > 1e-4


def test_means_are_over_tokens_that_are_there() -> None:
    """Padding has no part in a mean: hidden tokens may hold anything."""
    trial, model = moved(margin("query"))
    data = trial.task.open()

    def predict(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        assert visible is None
        padded = torch.cat((inputs, inputs.flip(1)), 1)
        seen = (torch.arange(32) < 16).expand(len(inputs), 1, 32)
        return model(padded, seen)[:, :16]  # type: ignore[no-any-return]

    means = {"margin.amplification": ()}
    with torch.inference_mode():
        with use_means(trial, model, data, model, means):
            plain = model(data.batch(0, 0).inputs)
        with use_means(trial, model, data, predict, means):
            padded = model(data.batch(0, 0).inputs)
    torch.testing.assert_close(plain, padded)


def means_of(base: Trial = TRIAL, baseline: str | None = None, **operators: Operator) -> dict[str, dict[str, Any]]:
    axes = [over("operator", list(operators.values()), labels=list(operators))]
    of = None if baseline is None else {"operator": baseline}
    grid = Grid(name="g", base=base, axes=axes, seeds=[0], measure=LOSS, baseline=of)
    cells = {each.label: each for each in grid.cells()}
    found = plan_knockouts(grid, {each.cell: each.trial for each in cells.values()})
    return {label: dict(found[each.cell].means) for label, each in cells.items()}


def test_a_number_is_compared_with_each_level_it_meets_or_else_the_coarsest() -> None:
    cells = {"softmax": softmax(), **{each: margin(each) for each in ("layer", "head", "query")}}
    assert means_of(**cells) == {
        "softmax": {},
        "layer": {},
        "head": {"margin-layer.amplification": ("layer",)},
        "query": {"margin-layer.amplification": ("layer",)},
    }
    assert means_of(**cells, baseline="head")["query"] == {"margin-head.amplification": ("layer", "head")}
    assert means_of(**cells, baseline="query")["query"] == {
        "margin-layer.amplification": ("layer",),
        "margin-head.amplification": ("layer", "head"),
    }
    fixed = {"fixed": margin("constant"), "learned": margin("constant", learned=True), "layer": margin("layer")}
    assert means_of(**fixed) == {"fixed": {}, "learned": {}, "layer": {"margin-constant.amplification": ()}}
    assert means_of(fixed=fixed["fixed"], layer=fixed["layer"], head=margin("head"), baseline="layer") == {
        "fixed": {},
        "layer": {"margin-constant.amplification": ()},
        "head": {"margin-layer.amplification": ("layer",)},
    }


def test_levels_that_several_grids_compare_are_joined() -> None:
    one, other = (
        Knockout(name="loss", means={f"margin-{level}.amplification": level}) for level in ("constant", "layer")
    )
    assert one.join(other).means == {"margin-constant.amplification": (), "margin-layer.amplification": ("layer",)}


def test_only_the_same_stage_is_coarser() -> None:
    wide, narrow = (principled(per, gate_width=width) for per, width in (("head", 8), ("query", 4)))
    found = means_of(a=wide, b=narrow)["b"]
    assert not any(name.startswith("gate") for name in found)
    assert found["margin-head.amplification"] == ("layer", "head")
    assert means_of(a=ssa(), b=margin("head")) == {"a": {}, "b": {}}


def test_a_start_by_depth_differs_by_layer_at_any_granularity() -> None:
    factor = differential().merge.factor
    scalar = factor.changed(form="scalar", spread=0.1)
    several = {
        per: differential().changed(merge=differential().merge.changed(factor=scalar.at(per)))
        for per in ("constant", "layer", "head")
    }
    found = means_of(**several)
    assert found == {"constant": {}, "layer": {}, "head": {"merge-constant.factor": ("layer",)}}
