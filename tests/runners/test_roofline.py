"""Work is counted exactly where it can be, and a prior follows from it."""

import math
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from runners import Curriculum, Execution, LinearFunctions, ShiftGrid, Text, Training, Trial
from runners.planning import roofline
from runners.planning.roofline import (
    GPUS,
    UNKNOWN_GPU,
    Device,
    Place,
    device_at,
    evaluation_passes,
    gpu,
    place_of,
    prior,
    this_cpu,
    trained_length,
)
from runners.training import flops as work, meta_op_cache
from runners.training.flops import Counter, Shape, Work, forward_work, optimiser_work, step_work
from variants import (
    Backbone,
    Operator,
    Scalars,
    Tokens,
    Transformer,
    differential,
    gpt2,
    integral,
    llama3,
    principled,
    softmax,
    ssa,
)
from variants.number import Number
from variants.paths.choose import PathName
from variants.stages.extras.key_value_bias import KeyValueBias
from variants.stages.products.mlp import MLP

OPERATORS = {
    "softmax": softmax(),
    "ssa": ssa(),
    "four signals": integral(signals=4),
    "principled": principled(gate_width=4),
    "differential": differential(),
    "extra key": Operator(extra=KeyValueBias()),
    "mlp product": Operator(product=MLP()),
}
BACKBONES = {
    "gpt2": gpt2(layers=3, heads=4, width=64, max_positions=64),
    "grouped queries": llama3(layers=3, heads=4, kv_heads=2, width=64, feedforward_width=96),
}


def trained_once(model: Transformer, batch: int, length: int, vocabulary: int) -> None:
    outputs = model(torch.randint(vocabulary, (batch, length)))
    outputs.log_softmax(-1).mean().backward()


@pytest.mark.parametrize("backbone", BACKBONES.values(), ids=BACKBONES)
@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_operations_of_matrix_products_are_those_of_a_real_step(operator: Operator, backbone: Backbone) -> None:
    operators = (operator,) * 3
    model = Transformer(backbone, operators, inputs=Tokens(100), seed=0, path="reference")
    with FlopCounterMode(display=False) as real:
        trained_once(model, 3, 21, 100)
    found = step_work(backbone, operators, Tokens(100), "reference", Shape(3, 21))
    assert found.flops == real.get_total_flops()


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_on_the_fast_path_shapes_alone_count_what_a_real_step_does(operator: Operator) -> None:
    backbone, operators = BACKBONES["gpt2"], (operator,) * 3
    model = Transformer(backbone, operators, inputs=Tokens(100), seed=0)
    with Counter() as real:
        trained_once(model, 3, 21, 100)
    found = step_work(backbone, operators, Tokens(100), "auto", Shape(3, 21))
    assert found.flops == real.work.flops
    assert found.product_bytes == real.work.product_bytes
    assert found.other_bytes == pytest.approx(real.work.other_bytes, rel=0.5)
    assert found.kernels == pytest.approx(real.work.kernels, rel=0.5)


def test_softmax_is_what_the_textbook_says() -> None:
    """2 m k n per product, forward, and three times that for a step, whose tokens have no gradient."""
    layers, width, inner, batch, length, heads, key_heads = 3, 64, 96, 3, 21, 4, 2
    channels = width // heads
    tokens = batch * length
    projections = width * (width + 2 * key_heads * channels) + width * width
    maps = 2 * batch * heads * length * length * channels
    layer = 2 * tokens * (projections + 3 * width * inner) + 2 * maps
    forward = layers * layer + 2 * tokens * width * 100
    found = (BACKBONES["grouped queries"], (softmax(),) * 3, Tokens(100), "reference", Shape(batch, length))
    assert forward_work(*found).flops == forward
    assert step_work(*found).flops == 3 * forward


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("path", ["auto", "reference"])
def test_results_that_are_remembered_change_no_count(
    operator: Operator, path: PathName, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (BACKBONES["gpt2"], (operator,) * 2, Tokens(100), path, Shape(2, 13))
    run = [0]

    def direct(function: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        run[0] += 1
        return function(*args, **given)

    monkeypatch.setattr(meta_op_cache, "_known", {})
    work._counted.cache_clear()
    remembered = [step_work.__wrapped__(*asked), forward_work.__wrapped__(*asked)]
    with monkeypatch.context() as patched:
        patched.setattr(work, "outcome", direct)
        work._counted.cache_clear()
        plain = [step_work.__wrapped__(*asked), forward_work.__wrapped__(*asked)]
    assert remembered == plain
    assert len(meta_op_cache._known) < run[0] / 2
    work._counted.cache_clear()


def test_depth_and_placement_add_up() -> None:
    mixed = (softmax(), ssa(), softmax())
    backbone, shape = BACKBONES["gpt2"], Shape(2, 11)
    model = Transformer(backbone, mixed, inputs=Scalars(1), seed=0, path="reference")
    with Counter() as real, torch.no_grad():
        model(torch.zeros(2, 11, 1))
    found = forward_work(backbone, mixed, Scalars(1), "reference", shape)
    assert found.flops == real.work.flops
    one = forward_work(backbone.changed(layers=1), (softmax(),), Scalars(1), "reference", shape)
    many = forward_work(backbone.changed(layers=24), (softmax(),) * 24, Scalars(1), "reference", shape)
    assert many.flops > 20 * one.flops


def test_signals_multiply_the_maps_of_scores() -> None:
    from variants.stages.merges.mean import MeanWeights
    from variants.stages.signals import Signals

    shape, backbone = Shape(2, 63), BACKBONES["gpt2"]

    def moved(operator: Operator) -> float:
        return forward_work(backbone, (operator,) * 3, Scalars(1), "reference", shape).other_bytes

    four = Operator(signals=Signals(count=4), merge=MeanWeights())
    assert moved(four) > 2 * moved(softmax())


def test_a_fused_kernel_moves_no_maps() -> None:
    shape, backbone = Shape(2, 128), gpt2(layers=2, heads=4, width=64)
    fused, plain = (step_work(backbone, (softmax(),) * 2, Tokens(100), path, shape) for path in ("sdpa", "reference"))
    assert fused.other_bytes + fused.product_bytes < 0.7 * (plain.other_bytes + plain.product_bytes)
    assert fused.kernels < plain.kernels


def test_the_roofline_is_the_larger_of_two_and_launches_hide_behind_a_gpu() -> None:
    work = Work(flops=1e9, product_bytes=1e6, other_bytes=1e6, kernels=1000)
    cpu = Device("cpu", flops=1e10, bandwidth=1e9, launch_s=1e-5, overlaps=False)
    assert cpu.seconds(work) == pytest.approx(0.1 + 0.001 + 0.01)
    assert cpu._replace(overlaps=True).seconds(work) == pytest.approx(0.1 + 0.001)
    assert cpu._replace(overlaps=True, launch_s=1e-3).seconds(work) == pytest.approx(1.0)
    assert cpu._replace(flops=1e20).seconds(work) == pytest.approx(0.001 + 0.001 + 0.01)
    assert optimiser_work(10).other_bytes == 440


def trial(steps: int = 100, evaluate_every: int | None = None, **changes: object) -> Trial:
    judged = ShiftGrid(sigma_x=(1.0, 2.0), sigma_f=(1.0,), functions=10, sequences=8, points=8)
    base = Trial(
        task=LinearFunctions(points=11, batch=8, evaluation=judged),
        model=gpt2(layers=1, heads=2, width=16),
        operator=softmax(),
        training=Training(steps=steps, evaluate_every=evaluate_every),
    )
    return base.changed(**changes)


SLOW = Device("slow", flops=1e9, bandwidth=1e9, launch_s=1e-5, overlaps=False)


def found(asked: Trial, device: Device = SLOW) -> tuple[float, float]:
    seconds = prior(asked, device)
    assert seconds is not None
    return seconds


def test_more_steps_take_longer_and_evaluation_is_counted_as_often_as_it_happens() -> None:
    all_s, training_s = found(trial())
    assert found(trial(steps=300))[1] == pytest.approx(3 * training_s)
    assert 0 < training_s < all_s
    often = found(trial(evaluate_every=25))
    assert often[1] == training_s
    assert often[0] - often[1] == pytest.approx(4 * (all_s - training_s))


def test_a_faster_device_a_smaller_batch_and_more_gpus_take_less() -> None:
    all_s, training_s = found(trial())
    assert found(trial(), SLOW._replace(flops=1e12, bandwidth=1e12))[0] < all_s
    assert found(trial(task=trial().task.changed(batch=4)))[1] < training_s
    assert found(trial(operator=principled()))[1] > training_s


def test_micro_batches_launch_their_kernels_again_and_gpus_share_what_they_compute() -> None:
    launches = SLOW._replace(flops=1e20, bandwidth=1e20)

    def training_s(device: Device, **execution: int) -> float:
        return found(trial(execution=Execution(device="cpu", **execution)), device)[1]

    optimiser = optimiser_work(1).kernels * launches.launch_s * roofline.CALIBRATION * 100
    whole = training_s(launches) - optimiser
    assert training_s(launches, accumulate=4) - optimiser == pytest.approx(4 * whole)
    assert training_s(launches, gpus=4) - optimiser == pytest.approx(whole)
    computes = SLOW._replace(launch_s=0.0, bandwidth=1e20)
    assert training_s(computes, accumulate=4) == pytest.approx(training_s(computes))
    assert training_s(computes, gpus=2, accumulate=4) == pytest.approx(training_s(computes) / 2)


def test_the_sizes_of_an_evaluation_are_the_tasks() -> None:
    assert evaluation_passes(trial().task) == [(Shape(80, 15), 2.0)]
    assert evaluation_passes(Text(context=32, validation_windows=128)) == [(Shape(32, 32), 4.0)]


def test_a_curriculum_trains_on_shorter_sequences() -> None:
    whole = LinearFunctions(points=40)
    grows = whole.changed(curriculum=Curriculum(start=10, every=100, increment=10))
    assert trained_length(whole, 1000) == 79
    assert trained_length(grows, 100) == 19
    assert trained_length(grows, 400) == pytest.approx(2 * 25 - 1, abs=1)


def test_a_spec_that_is_no_trial_has_no_prior() -> None:
    assert prior(softmax(), SLOW) is None


def test_gpus_are_known_by_what_drivers_and_schedulers_call_them() -> None:
    assert gpu("NVIDIA H100 80GB HBM3").name == gpu("h100").name == "H100"
    assert gpu("Tesla V100-SXM2-16GB").name == "V100"
    assert gpu("").flops == UNKNOWN_GPU.flops
    assert all(each.flops > 1e12 and each.bandwidth > 5e11 for each in GPUS)


def test_this_cpu_is_measured_once() -> None:
    measured = this_cpu(1)
    assert measured is this_cpu(1) is device_at(Place("cpu", 1), "h100")
    assert min(measured.flops, measured.bandwidth, measured.launch_s) > 0
    assert math.isfinite(measured.seconds(Work(1.0, 1.0, 1.0, 1.0)))


def test_a_trial_runs_where_it_says_and_auto_where_there_is_a_gpu() -> None:
    def place(device: str, gpus: float | None) -> Place:
        return place_of(trial(execution=Execution(device=device, threads=2)), cluster_gpus=gpus)  # type: ignore[arg-type]

    assert place("cpu", 1.0) == Place("cpu", 2)
    assert place("auto", 0.5) == Place("cuda", 2)
    assert place("auto", 0.0) == Place("cpu", 2)
    assert place("cuda", None) == Place("cuda", 2)
    assert place("auto", None).device == ("cuda" if torch.cuda.is_available() else "cpu")


def test_operators_that_start_elsewhere_are_counted_once_and_those_of_another_kind_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roofline, "_counted", {})
    roofline._counted_as.cache_clear()
    for strength in (0.25, 0.5):
        operator = principled(gate_width=4)
        found(trial(operator=operator.changed(gate=operator.gate.changed(strength=Number(init=strength)))))
    assert len(roofline._counted) == 1
    found(trial(operator=principled(gate_width=8)))
    found(trial(operator=ssa()))
    assert len(roofline._counted) == 3
    monkeypatch.setattr(roofline, "MOST_COUNTED", 3)
    assert found(trial(operator=principled(gate_width=2)))[1] == pytest.approx(
        found(trial())[1], rel=0.01
    )  # taken for it
    roofline._counted_as.cache_clear()
