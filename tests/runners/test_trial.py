"""Trials: identity, parts that fit together, parameters."""

import pytest
import torch

from grid import Grid, over
from grid.errors import SpecError
from grid.spec import cell_key
from runners.optimisers import Training
from runners.tasks import LinearFunctions
from runners.trial import Execution, Trial, build_model, parameters
from variants import Operator, Placement, cosformer, gpt2, integral, principled, softmax, ssa

OPERATORS = [softmax(), ssa(), integral(2), principled("query", gate_width=2)]


def test_what_is_identity_of_a_trial_and_of_its_cell(tiny: Trial) -> None:
    other = tiny.changed(execution=Execution(path="reference", log_every=7, threads=2, device="cpu"))
    assert other.key == tiny.key
    assert other.data()["execution"]["path"] == "reference"
    seeded = tiny.changed(seed=4)
    assert seeded.key != tiny.key
    assert cell_key(seeded) == cell_key(tiny)
    shares = [0.01, 1 / tiny.model.layers]  # the same layers
    assert len({tiny.changed(placement=Placement(share=share)).key for share in shares}) == 1
    half = tiny.changed(operator=ssa(), placement=Placement(share=0.5, rest=ssa(name="the same")))
    assert half.key == tiny.changed(operator=ssa()).key  # all layers have one operator
    assert tiny.changed(placement=Placement(share=0.5)).key == tiny.key


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.label)
def test_a_trial_survives_the_way_to_a_worker(tiny: Trial, operator: Operator) -> None:
    trial = tiny.changed(operator=operator, placement=Placement(share=0.5))
    again = Trial.model_validate(trial.data())
    assert again == trial
    assert again.key == trial.key


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task": LinearFunctions(points=5)}, "up to 79 tokens and the model has 16 positions"),
        ({"operator": integral(3)}, "operator .* in gpt2 2L 2H 8: signals.count divides a head's 4 channels; got 3"),
        ({"placement": {"share": 0.5, "rest": integral(3)}}, "signals.count divides a head's 4 channels; got 3"),
        ({"operator": ssa(), "execution": {"path": "sdpa"}}, "path 'sdpa' cannot run 'SSA'"),
        ({"task": {"kind": "linear_function"}}, "did you mean 'linear_functions'"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tiny: Trial, fields: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        tiny.changed(**fields)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.label)
def test_counted_parameters_are_those_of_the_built_model(tiny: Trial, operator: Operator) -> None:
    trial = tiny.changed(operator=operator)
    counted, model = parameters(trial), build_model(trial)
    assert counted.total == sum(p.numel() for p in model.parameters())
    assert counted.operator == counted.total - parameters(tiny).total


def test_placement_decides_which_layers_are_built_with_the_operator(tiny: Trial) -> None:
    trial = tiny.changed(operator=ssa(), placement=Placement(share=0.5))
    assert [operator.label for operator in trial.operators()] == ["softmax", "SSA"]
    assert {layer for layer, *_ in build_model(trial).numbers()} == {1}


def test_two_operators_of_one_seed_start_from_the_same_weights(tiny: Trial) -> None:
    plain = build_model(tiny).state_dict()
    rich = build_model(tiny.changed(operator=principled("query", gate_width=2))).state_dict()
    assert plain.keys() < rich.keys()
    assert all(torch.equal(rich[name], weights) for name, weights in plain.items())
    other = build_model(tiny.changed(seed=4)).state_dict()
    assert not torch.equal(other["read_in.weight"], plain["read_in.weight"])


def test_what_comes_to_nothing_in_the_base_is_not_lost_to_the_cells_of_a_grid(tiny: Trial) -> None:
    """Each field means nothing beside the base's others, and something beside an axis's."""
    half = Placement(share=0.5, side="bottom")
    model = gpt2(layers=3, heads=4, width=16).changed(kv_heads=4)
    base = tiny.changed(operator=ssa(), model=model, placement=half, training=Training(steps=10, evaluate_every=50))
    axes = [over("model.layers", [3, 12]), over("model.heads", [4, 8]), over("training.steps", [10, 100])]
    for planned in Grid("written", base, axes, seeds=[0]).enumerate():
        layers, heads, steps = (planned.axes[name] for name in ("layers", "heads", "steps"))
        trial = planned.trial
        assert trial.model.kv_heads == (None if heads == 4 else 4)
        assert trial.placement == half.on(layers)
        assert trial.training.evaluate_every == (50 if steps == 100 else None)


def test_an_operator_defined_for_shorter_sequences_is_refused(tiny: Trial) -> None:
    length = tiny.task.length
    tiny.changed(operator=cosformer(length=length - 1))  # compares tokens up to length - 1 apart
    with pytest.raises(SpecError, match=f"of up to {length - 1} tokens, and the task's have up to {length}"):
        tiny.changed(operator=cosformer(length=length - 2))
