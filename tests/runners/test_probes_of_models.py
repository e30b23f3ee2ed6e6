"""Probes of activations, logits, numbers and gradients; and all probes on all operators."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ablate import QKLogits, SinkShare, TokenClasses
from ablate.grid.errors import SpecError
from ablate.training.loop.train import train
from ablate.training.probes import (
    GateSparsity,
    GradientNorms,
    GroundMass,
    LearnedNumbers,
    MassiveActivation,
    PredictedNumbers,
)
from ablate.training.probes.probe import Probe, ProbeArray, ProbeInput, Probing
from ablate.training.tasks import LinearFunctions
from ablate.training.tasks.task import Task
from ablate.training.trial import Trial
from ablate.variants import Operator, Transformer, differential, integral, softmax, ssa
from ablate.variants.laws.examples import named_operators
from ablate.variants.laws.inputs import LENGTH, model_of as smallest, sequences
from ablate.variants.papers.affine_scaled import affine_scaled, gated_heads, learned_sink
from ablate.variants.papers.principled import principled
from tests.runners.probe_fixtures import by_place, make_layer, make_model, probe_layer, probe_model

ALL = [member for member in Probe.members().values() if member.__module__.startswith("ablate.training.probes.")]


def ids(*shape: int) -> Tensor:
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(0))


INPUTS = torch.tensor([[0, 7, 8, 9], [0, 1, 2, 3]])


def make_model_that_adds_nothing(embedding: Tensor, **changes: object) -> Transformer:
    """Make a model whose layers add nothing to the embedding, in which token 0 is 25 times as long as the others."""
    model = make_model(softmax(), **changes)
    with torch.no_grad():
        model.position.weight.zero_()
        model.read_in.weight.copy_(embedding * torch.tensor([50.0] + [2.0] * 255)[:, None])
        for block in model.blocks():
            block.attention.out.weight.zero_()
            block.feedforward.down.weight.zero_()
    return model


def test_a_massive_first_token_is_as_massive_as_it_was_made() -> None:
    model = make_model_that_adds_nothing(torch.eye(16).repeat(16, 1))
    records = by_place(probe_model(model, INPUTS, MassiveActivation()))
    expected = {"activation_first": 50, "activation_others": 2, "activation_ratio": 25}
    places = ((0, 0), (1, 0), (2, 1))  # (depth, layer)
    assert records == pytest.approx(
        {(name, layer, None, ("depth", depth)): value for name, value in expected.items() for depth, layer in places}
    )
    assert by_place(probe_model(model, INPUTS[:, :1], MassiveActivation())) == {}


@pytest.mark.parametrize("operator", [softmax(), principled("head", gate_width=2), integral(2)], ids=lambda o: o.label)
def test_logits_are_the_scaled_products_before_margin_gate_and_positions(operator: Operator) -> None:
    model = make_model(operator, positions={"kind": "alibi"}, kv_heads=1)
    with torch.no_grad():
        for block in model.blocks():
            block.attention.qkv.weight *= 20
    records = by_place(probe_model(model, ids(2, 7), QKLogits()))
    heads = next(model.trace_layers(ids(2, 7))).worked.heads
    z = heads.q[..., :8] @ heads.k[..., :8].mT / math.sqrt(8 * operator.signals.count)  # signals: mean of their logits
    z = z[..., torch.ones(7, 7, dtype=torch.bool).tril()].detach()
    for head in range(2):
        assert records["qk_logit_mean", 0, head] == pytest.approx(z[:, head].mean().item(), rel=1e-4)
        assert records["qk_logit_sd", 0, head] == pytest.approx(z[:, head].std(correction=0).item(), rel=1e-4)


def test_the_ground_state_has_the_mass_of_the_keys_under_the_threshold() -> None:
    for threshold, mass, below in ((-40.0, 0.0, 0.0), (40.0, 1.0, 1.0)):
        operator = Operator().changed(normaliser={"kind": "ground", "threshold": {"init": threshold}})
        records = by_place(probe_model(make_model(operator), ids(2, 7), GroundMass()))
        assert records["ground_mass", 1, 0] == pytest.approx(mass, abs=1e-6)
        assert records["below_threshold", 1, 0] == below
    model = make_model(principled("query", gate_width=2))
    with torch.no_grad():
        for block in model.blocks():
            block.attention.qkv.weight *= 20
    records = by_place(probe_model(model, ids(2, 7), GroundMass()))
    worked = next(model.trace_layers(ids(2, 7))).worked
    gamma, a = worked.numbers["normaliser.threshold"], worked.attended.logits
    pairs = [(b, i, j) for b in range(2) for i in range(7) for j in range(i + 1)]
    expected = np.mean([bool(a[b, 1, i, j] < gamma[min(b, len(gamma) - 1), 1, i, 0]) for b, i, j in pairs])
    assert 0 < expected < 1
    assert records["below_threshold", 0, 1] == pytest.approx(expected)
    assert records["ground_mass", 0, 1] == pytest.approx(1 - worked.attended.weights[:, 1].sum(-1).mean().item())
    sink = by_place(probe_model(make_model(learned_sink()), ids(2, 7), GroundMass()))  # it has no threshold
    assert {name for name, *_ in sink} == {"ground_mass"}
    assert 0 < sink["ground_mass", 0, 0] < 1


def test_gates_and_predicted_numbers_leave_padding_out_and_know_their_bound() -> None:
    mask = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
    mask[:, :, 3] = False
    opening = torch.tensor([0.05, 0.1, 0.7, 0.01], dtype=torch.float64).view(1, 1, 4, 1)
    layer = make_layer(torch.ones(1, 1, 4, 4), mask, gated_heads())
    layer = layer._replace(worked=layer.worked._replace(numbers={"output_gate.opening": opening}))
    for below, share in ((0.1, 1 / 3), (0.2, 2 / 3), (0.9, 1)):
        records = probe_layer(GateSparsity(below=below), layer)
        assert records == {("gate_sparsity", 1, 0, ("below", below)): pytest.approx(share)}
    predicted = probe_layer(PredictedNumbers(), layer)
    assert predicted["predicted.output_gate.opening", 1, 0] == pytest.approx(np.mean([0.05, 0.1, 0.7]))
    assert predicted["predicted_sd.output_gate.opening", 1, 0] == pytest.approx(np.std([0.05, 0.1, 0.7]))


def test_numbers_are_known_where_they_start_where_they_average_and_where_they_are_used() -> None:
    model = make_model(affine_scaled())
    numbers = model.blocks()[0].attention.numbers
    with torch.no_grad():
        numbers.projection["rescale_scale"] += torch.randn(2, 16, generator=torch.Generator().manual_seed(2)) * 0.1
        numbers.get_buffer("rescale_mean").fill_(0.7)
    records = by_place(probe_model(model, ids(2, 7), LearnedNumbers(), PredictedNumbers()))
    alpha = next(model.trace_layers(ids(2, 7))).worked.numbers["rescale.scale"][:, 1].detach()
    assert alpha.std() > 0.01
    names = ("number.rescale.scale", "number.rescale.mean", "predicted.rescale.scale", "predicted_sd.rescale.scale")
    expected = [0.5, 0.7, alpha.mean().item(), alpha.std(correction=0).item()]
    assert [records[name, 0, 1] for name in names] == pytest.approx(expected)
    model = make_model(differential())
    lambdas = by_place(probe_model(model, ids(2, 7), LearnedNumbers()))
    factors = [layer.worked.numbers["merge.factor"].item() for layer in model.trace_layers(ids(2, 7))]
    assert [lambdas["number.merge.factor", layer, None] for layer in (0, 1)] == pytest.approx(factors)


def norms_of(norms: list[float], **fields: Any) -> dict[Any, float]:
    seen = ProbeInput(None, None, None, 1, norms)
    return by_place(list(GradientNorms(**fields).of_model(seen)))


def test_gradient_norms_have_the_statistics_of_numpy() -> None:
    norms = np.random.default_rng(0).lognormal(size=500)
    mean, sd, median = norms.mean(), norms.std(), np.median(norms)
    mad = np.median(abs(norms - median))
    expected = {"mean": mean, "sd": sd, "variance": norms.var(), "cv": sd / mean}
    spikes = {k: (norms > median + k * mad).sum() for k in (2, 6)}
    assert min(spikes.values()) > 0
    assert norms_of(norms.tolist(), k=(2, 6)) == pytest.approx(
        {
            **{(f"gradient_norm_{name}", None, None): value for name, value in expected.items()},
            **{("gradient_spikes", None, None, ("k", k)): count for k, count in spikes.items()},
        }
    )


def test_gradient_norms_that_say_nothing_are_left_out() -> None:
    assert norms_of([]) == {}
    assert not any("spikes" in name for name, *_ in norms_of([2.0] * 9 + [5.0]))  # the MAD is 0
    assert ("gradient_norm_cv", None, None) not in norms_of([0.0, 0.0])
    records = norms_of([1.0, math.inf, 3.0, math.nan])
    assert records["gradient_norm_not_finite", None, None] == 2
    assert records["gradient_norm_mean", None, None] == 2
    bound = norms_of([1.0, 2.0, 3.0, 4.0, 5.0, 5.5], k=(1, 1.5))  # median 3.5, MAD 1.5
    assert [bound["gradient_spikes", None, None, ("k", k)] for k in (1, 1.5)] == [1, 0]


@pytest.mark.parametrize(
    ("probe", "fields", "said"),
    [
        (SinkShare(positions=(1, 99)), {}, "sink_share, which needs sequences of 99 tokens"),
        (SinkShare(positions=(0,)), {"operator": ssa()}, "no operator .SSA. has a learned key at position 0"),
        (GroundMass(), {"operator": ssa()}, "no operator .SSA. has "),
        (TokenClasses(), {}, "'linear_functions' has no classes of tokens"),
        (TokenClasses(by="bytes"), {}, "linear_functions.* takes tokens that are bytes"),
    ],
    ids=lambda value: getattr(value, "label", None),
)
def test_a_probe_without_a_meaning_is_refused(tiny: Trial, probe: Probe, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        tiny.changed(probing=Probing(probes=(probe,)), **fields)


def every_probe(operator: Operator, task: Task) -> list[Probe]:
    """One of each kind, at its most talkative, where it has a meaning."""
    settings: dict[str, dict[str, Any]] = {
        "sink_share": {"eps": (0.1, 0.3), "positions": (0, 1, 2)},
        "first_token": {"by_query": True},
    }
    records = []
    for member in ALL:
        probe = member(**settings.get(member.model_fields["kind"].default, {}))
        try:
            probe.check(task, smallest(operator).backbone, (operator,))
        except ValueError:
            if not isinstance(probe, SinkShare):
                continue
            probe = SinkShare(eps=(0.1, 0.3), positions=(1, 2))
        records.append(probe)
    return records


@pytest.mark.parametrize("operator", list(named_operators()), ids=lambda operator: operator.label)
def test_every_probe_finds_finite_values_in_every_named_operator(operator: Operator) -> None:
    model = smallest(operator).eval()
    with torch.no_grad():
        for block in model.blocks():
            block.attention.qkv.weight *= 30  # logits that are not all alike
    records = probe_model(model, sequences(), *every_probe(operator, LinearFunctions(points=LENGTH)))
    rows = by_place(records)
    assert all(math.isfinite(value) for value in rows.values())
    assert all(np.isfinite(x).all() for each in records if isinstance(each, ProbeArray) for x in each.arrays.values())
    everywhere = {(layer, head) for layer in (0, 1) for head in range(model.blocks()[0].attention.heads)}
    names = ("weight_sum", "first_token_weight", "effective_rank", "entropy", "entropy_last", "qk_logit_sd")
    for name in (*names, "first_key_norm", "other_qk_cosine"):
        assert {row[1:] for row in rows if row[0] == name and len(row) == 3} == everywhere, name
    assert all(0 <= value <= 1 + 1e-12 for (name, *_), value in rows.items() if name in ("importance", "sink_share"))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_trial_with_every_probe_trains_in_any_precision(tiny: Trial, memory: Callable, precision: str) -> None:
    operator = principled("query", gate_width=2)
    trial = tiny.changed(
        operator=operator,
        training=tiny.training.changed(precision=precision),
        probing=Probing(probes=tuple(every_probe(operator, tiny.task)), sequences=3),
    )
    world = memory()
    train(trial, world)
    assert all(math.isfinite(value) for value in world.probes.values())
    whole = world.probes[12, "weight_sum", 0, 0] + world.probes[12, "ground_mass", 0, 0]
    assert whole == pytest.approx(1, abs=1e-5)
