"""Triton kernels compute the definition, here through Triton's interpreter, in float32 and float16."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from path_outcomes import (
    GATE,
    GROUND,
    ONE_SCORE_OPERATORS,
    SINKS,
    defined,
    masks,
    most_entries,
    outcome,
    tied_inputs,
    turn,
)
from torch import Tensor

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.variants import Heads, Operator, Scalars, Transformer, affine_scaled, causal, entmax15, gpt2
from ablate.variants.laws.examples import family
from ablate.variants.laws.inputs import InputFit, Inputs, fit, random_inputs
from ablate.variants.operator import NumberValues
from ablate.variants.paths import triton as path
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import choose

pytest.importorskip("triton")

OPERATORS = [each for each in (*ONE_SCORE_OPERATORS, *SINKS) if path.cannot(each) is None]
PRINCIPLED, SSA, SIGNED, SINK = (OPERATORS[at] for at in (0, 4, -4, -2))
WINDOW = next(each for each in OPERATORS if each.visible.kind == "window")
IDS = [f"{at} {operator.label}" for at, operator in enumerate(OPERATORS)]


def errors(came: dict[str, Any], exact: dict[str, Any]) -> dict[str, float]:
    """Return the largest error of each result, in units of its largest entry."""
    return {name: float((came[name] - x).abs().max() / (x.abs().max() + 1e-30)) for name, x in exact.items()}


def assert_small_errors(operator: Operator, inputs: Inputs, mask: Tensor | None = None) -> None:
    exact = outcome(operator, defined, inputs.to(torch.float64), mask)
    for name, error in errors(outcome(operator, path.run, inputs.to(torch.float32), mask), exact).items():
        assert error <= 1e-5, name


def assert_usual_errors(operator: Operator, length: int, more: float) -> None:
    """In float32, errors are at most four times those of the definition, and `more`."""
    inputs = random_inputs(operator, batch=1, length=length, scale=2.0).to(torch.float32)
    exact = outcome(operator, defined, inputs.to(torch.float64))
    usual = errors(outcome(operator, defined, inputs), exact)
    for name, error in errors(outcome(operator, path.run, inputs), exact).items():
        assert error <= 4 * usual[name] + more, name


@pytest.mark.parametrize("operator", OPERATORS, ids=IDS)
def test_float32_errs_no_more_than_the_definition(operator: Operator) -> None:
    assert_usual_errors(operator, 70, 1e-6)


def draw_combinations(count: int) -> list[Operator]:
    """Draw operators that the path runs, of random choices of the stages that it computes."""
    stages = ("visible", "transform", "margin", "gate", "score", "normaliser", "rescale", "readout")
    choices = {stage: [each.example() for each in family(stage).members().values()] for stage in stages}
    drawn, found = Random(0), dict[str, Operator]()
    while len(found) < count:
        chosen = {stage: drawn.choice(each) for stage, each in choices.items()}
        with suppress(SpecError):
            name = " ".join(choice.label for choice in chosen.values() if choice.label != "none")
            operator = Operator().changed(**chosen, name=name)
            fit(operator)
            if path.cannot(operator) is None:
                found[operator.key] = operator
    return list(found.values())


@pytest.mark.parametrize("operator", draw_combinations(80), ids=lambda each: each.label)
def test_random_combinations_err_within_the_budget(operator: Operator) -> None:
    """The budget of a GPU, in docs/performance.md."""
    assert_usual_errors(operator, 18, 2**-15)


@pytest.mark.parametrize("channels", [16, 80, 128])
@pytest.mark.parametrize("operator", [PRINCIPLED, SSA, SIGNED], ids=lambda each: each.label)
def test_heads_of_any_width(operator: Operator, channels: int) -> None:
    """A block of 128 channels has 48 that a head of 80 lacks."""
    fitted = InputFit(heads=1, channels=channels, rotary=False)
    assert_small_errors(operator, random_inputs(operator, batch=1, fitted=fitted, length=33).to(torch.float32))


@pytest.mark.parametrize("operator", [PRINCIPLED, SINK], ids=["ground", "sink"])
@pytest.mark.parametrize(("mask", "per"), [("padding", "head"), ("encoder", "query"), ("holes", "query")])
def test_masks_hide_keys(operator: Operator, mask: str, per: str) -> None:
    inputs = random_inputs(operator, length=33)
    if per == "head":
        inputs = inputs._replace(numbers={name: x[:1, :, :1] for name, x in inputs.numbers.items()})
    assert_small_errors(operator, inputs, masks(33)[mask])


HALF = [
    *(PRINCIPLED, SSA, SIGNED, WINDOW, SINK),
    Operator(margin={"kind": "ssmax"}),
    Operator(transform={"kind": "temperature"}),
    Operator(normaliser={"kind": "sink"}, margin={"kind": "ssmax"}, transform={"kind": "temperature"}, **GATE),
]


@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize("operator", HALF, ids=lambda each: each.label)
def test_float16_errs_at_most_twice_as_much_as_the_definition(operator: Operator, scale: float) -> None:
    """The definition gets the same rounded inputs; both round the output."""
    given = random_inputs(operator, length=70, scale=scale).to(torch.float32)
    inputs = Inputs(*(x.half() for x in given[:3]), given.numbers)
    exact = outcome(operator, defined, Inputs(*(x.double() for x in inputs[:3]), given.to(torch.float64).numbers))
    usual = errors(outcome(operator, defined, inputs), exact)
    for name, error in errors(outcome(operator, path.run, inputs), exact).items():
        assert error <= 2 * usual[name] + 2**-10, name


@pytest.mark.parametrize("operator", [PRINCIPLED, SSA], ids=lambda each: each.label)
def test_results_are_the_same_bits_whatever_else_is_in_the_batch(operator: Operator) -> None:
    """Compare the output and its gradients; a number's gradient is a sum over the batch."""
    inputs, other = (random_inputs(operator, length=17, seed=seed).to(torch.float32) for seed in (0, 1))
    numbers = {name: x[:1] if x.shape[0] > 1 else x for name, x in inputs.numbers.items()}
    alone = outcome(operator, path.run, Inputs(inputs.q[:1], inputs.k[:1], inputs.v[:1], numbers))
    both = (torch.cat((mine[:1], its)) for mine, its in zip(inputs[:3], other[:3], strict=True))
    wide = {
        name: x[:1].expand(len(other.q) + 1, *x.shape[1:]) if x.shape[0] > 1 else x
        for name, x in inputs.numbers.items()
    }
    found = outcome(operator, path.run, Inputs(*both, wide))
    for name in ("output", "q", "k", "v"):
        assert torch.equal(found[name][:1], alone[name]), name


@pytest.mark.parametrize("operator", [PRINCIPLED, SSA], ids=lambda each: each.label)
def test_any_strides_and_shared_heads_give_the_same(operator: Operator) -> None:
    inputs = random_inputs(operator, length=17).to(torch.float32)
    turned = inputs._replace(q=turn(inputs.q), k=turn(inputs.k), v=turn(inputs.v))
    shared = inputs._replace(k=inputs.k[:, :1], v=inputs.v[:, :1])
    assert_small_errors(operator, turned)
    assert_small_errors(operator, shared)


@pytest.mark.parametrize("gamma", [0.3, 0.7, 1.1])
def test_an_exact_tie_under_a_margin_counts_as_relevant(gamma: float) -> None:
    operator = Operator(margin={"kind": "log_count"}, **GROUND, readout={"kind": "ground_value"})
    inputs, mean = tied_inputs(operator, gamma, 38)
    torch.testing.assert_close(outcome(operator, path.run, inputs)["output"], mean)


@pytest.mark.parametrize("margin", ["none", "log_count"])
@pytest.mark.parametrize("tau", [None, 2.0])
def test_gradients_at_ties_are_those_of_the_definition(margin: str, tau: float | None) -> None:
    """Products are whole numbers, so that many logits equal the threshold 1, or 1 / tau."""
    transform = {"kind": "none" if tau is None else "temperature"}
    operator = Operator(transform=transform, margin={"kind": margin}, **GROUND, readout={"kind": "ground_value"})
    given = random_inputs(operator, length=21, fitted=InputFit(heads=1, channels=16, rotary=False))
    q, k = ((2 * x).round().clamp(-1, 2) for x in given[:2])
    assert (q @ k.mT / 4 == 1).sum() > 20
    values = {"transform.tau": tau, "normaliser.threshold": 1 / (tau or 1)}
    numbers = {name: torch.full_like(x, values[name]) if name in values else x for name, x in given.numbers.items()}
    assert_small_errors(operator, given._replace(q=q, k=k, numbers=numbers))


def test_a_threshold_far_above_all_logits_leaves_the_ground_value() -> None:
    operator = Operator(**GROUND, readout={"kind": "ground_value"})
    given = random_inputs(operator, length=21).to(torch.float32)
    threshold = torch.full_like(given.numbers["normaliser.threshold"], 200)
    inputs = given._replace(numbers={**given.numbers, "normaliser.threshold": threshold})
    found, exact = outcome(operator, path.run, inputs), outcome(operator, defined, inputs.to(torch.float64))
    for name, value in exact.items():
        torch.testing.assert_close(found[name].double(), value, rtol=1e-6, atol=1e-6, msg=name)


def test_sums_beyond_float16_are_divided_first() -> None:
    """Up to 70 values of 3,000."""
    operator = Operator(score={"kind": "sigmoid"}, normaliser={"kind": "count"})
    given = random_inputs(operator, length=70).to(torch.float32)
    q, k, v = given.q.half(), given.k.half(), torch.full_like(given.v, 3000).half()
    output = path.run(operator, Heads(q, k, v), given.numbers)
    exact = defined(operator, Heads(q.double(), k.double(), v.double()), given.to(torch.float64).numbers)
    torch.testing.assert_close(output.double(), exact, rtol=2**-10, atol=0)


def test_a_compiler_traces_the_path() -> None:
    inputs = random_inputs(SSA, length=17).to(torch.float32)
    compiled = torch.compile(path.run, backend="aot_eager", fullgraph=True)
    found, expected = outcome(SSA, compiled, inputs), outcome(SSA, path.run, inputs)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=name)


@pytest.mark.parametrize(
    ("score", "normalised", "gated", "masked"),
    [
        ("exponential", "total", False, False),
        ("exponential", "sink", True, True),
        ("ssa", "ground", True, True),
        ("signed_exponential", "total", False, True),
        ("sigmoid", "none", True, False),
    ],
)
def test_pytorch_accepts_the_operations(score: str, normalised: str, gated: bool, masked: bool) -> None:
    from ablate.variants.paths.triton_ops import score_attention

    there = (True, gated, score == "ssa", score == "sigmoid", normalised in ("ground", "sink"))
    factor, *numbers = (torch.rand(2, 17) if each else None for each in there)
    gates = [torch.randn(1, 2, 17, 4) if gated else None for _ in range(2)]
    given = [*(torch.randn(1, 2, 17, 8) for _ in range(3)), factor, *gates, *numbers]
    given = [None if x is None else x.requires_grad_() for x in given]
    shown = causal(17, 17).expand(1, 2, 17, 17) if masked else None
    torch.library.opcheck(score_attention, (*given, shown, score, normalised, not masked))


GPU = Case(70, 70, device="cuda")


@pytest.mark.parametrize(
    ("operator", "case", "said", "instead"),
    [
        (SSA, GPU._replace(channels=160), "heads of up to 128 channels, not 160", "reference"),
        (SSA, GPU._replace(dtype=torch.float64), "float32, bfloat16 and float16, not in float64", "reference"),
        (SSA, GPU._replace(device="cpu"), "on GPUs only, not on cpu", "cpu"),
        (SSA, GPU._replace(queries=3), "as many queries as keys", "reference"),
        (SSA, GPU._replace(biased=True), "without a position bias only", "reference"),
        (SSA, GPU._replace(dropout=True), "drops no weights", "reference"),
        (entmax15(), GPU, "only, not 'entmax15'", "reference"),
        (PRINCIPLED.changed(gate={"kind": "suppress", "width": 160}), GPU, "gates of up to 128 channels", "reference"),
        (affine_scaled(), GPU, "triton computes rescale", "sdpa"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_forced_path_that_cannot_run_says_why_and_what_runs_instead(
    operator: Operator, case: Case, said: str, instead: str
) -> None:
    with pytest.raises(SpecError) as raised:
        choose(operator, case, "triton")
    (message,) = raised.value.args
    assert message.startswith(f"path 'triton' cannot run {operator.label!r}: triton ")
    assert said in message
    assert message.endswith(f"; use path='auto', which runs path '{instead}'")
    assert choose(operator, case).path.name == instead


def test_without_triton_or_in_a_precision_that_no_kernel_has_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    half = GPU._replace(dtype=torch.bfloat16)
    assert choose(SSA, half).path.name == "triton"
    assert "without tensor cores" in choose(SSA, GPU).reasons["triton"]
    monkeypatch.setattr(path, "_INSTALLED", False)
    with pytest.raises(EnvironmentProblem, match=r"needs the package triton, .*; install it, or use path='auto'$"):
        outcome(SSA, path.run, random_inputs(SSA, length=5))
    assert choose(SSA, half._replace(queries=71, keys=71)).path.name == "reference"  # choices are remembered by case
    monkeypatch.undo()
    with pytest.raises(SpecError, match=r"float32, bfloat16 and float16, not in torch.float64; use path='auto'"):
        outcome(SSA, path.run, random_inputs(SSA, length=5))


def test_memory_is_linear_in_the_length() -> None:
    def run(operator: Operator, heads: Heads, numbers: NumberValues) -> Tensor:
        return path.run(operator, Heads(*(x.float() for x in heads[:3])), numbers)

    assert most_entries(SSA, run, 128) <= 2 * most_entries(SSA, run, 64)


def compile_kernels(*arguments: str) -> dict[str, Any]:
    script = Path(__file__).parent.parent / "compile_kernels.py"
    environment = {**os.environ, "PYTHONPATH": str(script.parents[1] / "src")}
    command = [sys.executable, str(script), *arguments]
    compiled: dict[str, Any] = json.loads(
        subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    )
    return compiled


@pytest.mark.slow
def test_kernels_fit_an_h100() -> None:
    """Compiled for it without a GPU, threads spill no more than `TILES` says, and blocks have 227 KiB of shared memory.

    Spilled registers are all that the kernels keep on the stack. Their use is on record; one is compiled here, and
    all are with another version of Triton.
    """
    from ablate.variants.paths.triton_ops import TILES

    record = json.loads((Path(__file__).parent / "h100_kernels.json").read_text())
    one = compile_kernels("5")
    if one["triton"] == record["triton"]:
        assert one["sources"] == record["sources"], "run tests/compile_kernels.py as its first line says"
    else:
        record = compile_kernels()
    kernels = record["kernels"]
    assert one["kernels"] == kernels[5:6]
    assert len(kernels) == 30
    precisions = {"bf16": "half", "fp32": "single"}
    assert {(precisions[each["dtype"]], each["width"], each["gated"]) for each in kernels} == {*TILES}
    for each in kernels:
        assert each["stack"] <= {"bf16": 272, "fp32": 16}[each["dtype"]], each
        assert each["shared"] <= 227 * 1024, each


def test_a_compiled_model_runs_the_path_of_its_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice cannot be traced, so it is made before the precision of autocast is known."""
    model = Transformer(gpt2(layers=1, heads=2, width=8), [SSA], inputs=Scalars(), seed=0)
    attention, ran = model.blocks()[0].attention, list[torch.dtype]()
    assert attention._compiled["cuda", torch.bfloat16].name == "triton"
    assert attention._compiled["cuda", torch.float32].name == "reference"
    for dtype in (torch.bfloat16, torch.float32):

        def run(_operator: Operator, heads: Heads, _numbers: NumberValues, dtype: torch.dtype = dtype) -> Tensor:
            ran.append(dtype)
            return heads.v

        attention._compiled["cpu", dtype] = attention._compiled["cpu", dtype]._replace(run=run, name=str(dtype))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    for enabled in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            model(torch.zeros(1, 5, 1))
    assert ran == [torch.bfloat16, torch.float32]
    assert model.paths(5, torch.bfloat16, compiled=True) == ["torch.bfloat16"]
    assert model.paths(5, compiled=True) == ["torch.float32"]


def test_scaled_logits_in_half_precision_run_on_tensor_cores() -> None:
    """Path "sdpa" computes them in float32; with a learned key, which triton lacks, it is still the fastest."""
    long, margin = GPU._replace(queries=1024, keys=1024), {"margin": {"kind": "ssmax"}}
    half = long._replace(dtype=torch.bfloat16)
    assert choose(Operator(**margin), half).path.name == "triton"
    short = half._replace(queries=256, keys=256)
    assert [choose(Operator(**margin), short._replace(channels=each)).path.name for each in (64, 128)] == [
        "sdpa",
        "triton",
    ]
    assert choose(Operator(**margin), long).path.name == "sdpa"
    assert choose(Operator(**margin, extra={"kind": "key_bias"}), half).path.name == "sdpa"


def test_sinks_are_computed_by_name_alone() -> None:
    half = GPU._replace(queries=1024, keys=1024, dtype=torch.bfloat16)
    for sink in SINKS:
        assert choose(sink, half).path.name != "triton"
        assert choose(sink, half, "triton").path.name == "triton"
