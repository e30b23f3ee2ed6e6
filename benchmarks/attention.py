"""Attention by execution path, side by side with PyTorch's fused softmax attention of the same shape.

OMP_NUM_THREADS=1 python benchmarks/attention.py [--lengths 256 1024] [--rounds 15] [--operators ssa cog] [--write FILE]

All sides take turns, so that a busy machine slows all alike. Time is the processor time of this process, which other
processes change little. A result is the median of the rounds in milliseconds, for forward alone and for forward and
backward. Its ratio is to fused attention. Inputs are random, causal and float32. `--write` stores all as one JSON file.

With `--device cuda`, inputs are bfloat16 in batches of 16,384 tokens. Time is that between two events of the GPU; in
short sequences the GPU waits for the host. Fused attention is measured with each backend of PyTorch, and the fastest
counts. FlexAttention, compiled for each of `--flex-lengths`, and the package flash-attn, if installed, are further
sides. Memory is the most that forward and backward allocate beyond their inputs. `roofline` is the rate of the
operator's matrix products over that of one large product; hidden pairs and recomputed products do not count. Above
2,048 tokens, the definition is left out.

With `--compiled`, operators run as in compiled training, on the path that it takes. Operations around a kernel are
fused, and a step of a GPU is one CUDA graph, which the host starts at once.
"""

import statistics
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType
from typing import Any, NamedTuple, cast

import torch
import torch._dynamo
from measurement import Results, describe_error, machine, make_parser
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.utils.flop_counter import FlopCounterMode

from ablate.runners.attempts.attempt import gpu_software
from ablate.runners.provenance.environment import ask_gpus
from ablate.training.loop.compilation import copy_function
from ablate.training.loop.cost import peak_flops_per_s
from ablate.variants import Heads, Operator
from ablate.variants.model.seeding import generator
from ablate.variants.operator import head_shape
from ablate.variants.papers.catalogue import catalogue
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import PATHS, Path as ExecutionPath, choose

LONGEST_DEFINITION = 2048
"""Tokens up to which the definition is measured on a GPU; beyond, its maps take too much memory."""
OPERATORS = (
    "softmax", "affine_scaled", "learned_sink", "off_by_one", "key_bias", "integral", "integral_weights",
    "differential", "principled", "principled_ground", "ssa", "cog", "sigmoid", "sparsemax", "entmax15", "linear_elu",
    "identity", "mlp_kernel", "cosformer", "fox", "selective",
)  # fmt: skip
TOKENS = 16_384
"""Tokens of a batch on a GPU, whatever their number in a sequence."""
WARM_UP = 2
LIBRARIES = ("FLEX", "FLASH_ATTN")
"""Sides of fused attention that are no backend of PyTorch."""

Step = Callable[[], None]


def read_clock(device: str) -> float:
    """Read the processor time; on a GPU, the wall time when all that it was asked for is done."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def seconds_on_gpu(step: Step) -> float:
    """Return the seconds of a step between two events of the GPU."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    first.record()
    step()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / 1e3


class Setup(NamedTuple):
    """Sizes, device and precision of all sides."""

    batch: int
    heads: int
    channels: int
    device: str
    dtype: torch.dtype
    flex_lengths: tuple[int, ...] = ()
    """Tokens for which FlexAttention is measured."""
    compiled: bool = False
    """True if operators are compiled; on a GPU a step is then one CUDA graph."""

    def draw(self, heads: int, length: int, channels: int, made: torch.Generator) -> Tensor:
        """Draw [B, H, T, D] with gradients."""
        drawn = torch.randn(self.batch, heads, length, channels, generator=made, device=self._drawn_on)
        return drawn.to(self.device, self.dtype).requires_grad_()

    def generator(self) -> torch.Generator:
        """Return a generator on the device, so that long inputs are drawn quickly."""
        return torch.Generator(self._drawn_on or "cpu").manual_seed(0)

    @property
    def _drawn_on(self) -> str | None:
        """The GPU; None is the default device, which is "meta" while operations are counted."""
        return "cuda" if self.device == "cuda" else None

    def seconds(self, step: Step) -> float:
        """Return the seconds of a step: of the processor, or of the GPU between two events."""
        if self.device == "cuda":
            return seconds_on_gpu(step)
        began = time.process_time()
        step()
        return time.process_time() - began

    def prepare(self, step: Step) -> Step:
        """Run a step and return what is timed: the step, or its CUDA graph."""
        step()
        if not self.compiled or self.device == "cpu":
            return step
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # a graph begins on another stream, where kernels have run before
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def extra_bytes(self, step: Step) -> int | None:
        """Return the most bytes that a step allocates on the GPU."""
        if self.device == "cpu":
            return None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before


def heads_of(operator: Operator, length: int, setup: Setup) -> tuple[Heads, dict[str, Tensor]]:
    """Draw heads and numbers of `operator`, with gradients."""
    made = setup.generator()
    joined = operator.merge.heads_joined
    heads, value = setup.heads // joined, setup.channels * joined
    query = value + operator.added_channels
    q, k, v = (setup.draw(heads, length, channels, made) for channels in (query, query, value))
    shape = head_shape(operator, heads=heads, query=query, value=value, width=1)
    numbers = {}
    for name, number in operator.numbers().items():
        table = number.table(shape, 0) if number.trained else number.fixed_value(shape, 0)
        if number.trained:
            number.disturb(table, generator(0, "benchmark", name))
        value_of = number.value(table, 0) if number.trained else table
        numbers[name] = value_of.detach().to(setup.device).requires_grad_()
    return Heads(q, k, v), numbers


def steps_of(run: Callable[[], Tensor], inputs: list[Tensor]) -> dict[str, Step]:
    """Return a forward pass, and a forward and a backward pass."""

    def forward() -> None:
        with torch.no_grad():
            run()

    def both() -> None:
        for x in inputs:
            x.grad = None
        output = run()
        output.backward(torch.ones_like(output))  # type: ignore[no-untyped-call]

    return {"forward": forward, "both": both}


def on_path(operator: Operator, path: ExecutionPath, length: int, setup: Setup) -> dict[str, Step]:
    """Return the steps of `operator` on `path`."""
    heads, numbers = heads_of(operator, length, setup)

    def run() -> Tensor:
        return path.run(operator, heads, numbers)

    computed = (
        torch.compile(copy_function(cast(FunctionType, run)), fullgraph=True, dynamic=False) if setup.compiled else run
    )
    return steps_of(computed, [*heads[:3], *numbers.values()])


def fused(length: int, setup: Setup) -> dict[str, dict[str, Step]]:
    """Return the steps of PyTorch's fused attention alone, by backend."""
    made = setup.generator()
    q, k, v = inputs = [setup.draw(setup.heads, length, setup.channels, made) for _ in range(3)]
    if setup.device == "cpu":
        return {"": steps_of(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), inputs)}

    def by(backend: SDPBackend) -> Callable[[], Tensor]:
        def run() -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        return run

    backends = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
    found = {backend.name: steps_of(by(backend), inputs) for backend in backends}
    if length in setup.flex_lengths:
        found["FLEX"] = steps_of(by_flex(length, setup, inputs), inputs)
    if find_spec("flash_attn") is not None:
        flash = import_module("flash_attn").flash_attn_func  # [B, T, H, D]
        found["FLASH_ATTN"] = steps_of(lambda: flash(*(x.transpose(1, 2) for x in (q, k, v)), causal=True), inputs)
    return found


def by_flex(length: int, setup: Setup, inputs: list[Tensor]) -> Callable[[], Tensor]:
    """Return FlexAttention of q, k, v, compiled for this length."""
    flex = torch.compile(flex_attention, dynamic=False)

    @cache
    def mask() -> BlockMask:
        return create_block_mask(lambda _b, _h, i, j: i >= j, None, None, length, length, device=setup.device)

    q, k, v = inputs
    return lambda: flex(q, k, v, block_mask=mask())


def flops_of(operator: Operator, path: ExecutionPath, length: int, setup: Setup) -> dict[str, float]:
    """Count the operations of matrix products, without those of hidden pairs.

    Path "linear" has products of its own; other paths count as the definition. The count is a T^2 + b T in the length.
    Its quadratic part is that of pairs, and causality hides half of them.
    """
    counted = path if path.name == "linear" else PATHS[-1]
    found: dict[str, list[int]] = {}
    for tokens in (length, 2 * length):
        with torch.device("meta"):
            steps = on_path(operator, counted, tokens, setup._replace(device="meta", compiled=False))
        for what, step in steps.items():
            with FlopCounterMode(display=False) as counter:
                step()
            found.setdefault(what, []).append(counter.get_total_flops())
    return {what: once - (twice - 2 * once) / 4 for what, (once, twice) in found.items()}


def forget_graphs() -> None:
    """Forget all compiled graphs. From now on, too many graphs of one function are an error, not eager execution."""
    torch._dynamo.reset()
    torch._dynamo.config.fail_on_recompile_limit_hit = True


def measure(length: int, names: tuple[str, ...], rounds: int, setup: Setup) -> list[dict[str, Any]]:
    """Measure every operator on every path that can run it, in turns."""
    forget_graphs()
    case = Case(length, length, setup.device, setup.dtype, compiled=setup.compiled, channels=setup.channels)
    known = catalogue()
    every = {("fused attention", name): steps for name, steps in fused(length, setup).items()}
    operators = {name: known[name].make() for name in names}
    for name, operator in operators.items():
        able = [path for path in PATHS if path.reason(operator, case) is None]
        if setup.compiled:
            able = [choose(operator, case).path]
        elif setup.device == "cuda" and length > LONGEST_DEFINITION:
            able.remove(PATHS[-1])
        every |= {(name, path.name): on_path(operator, path, length, setup) for path in able}
    timed, errors = _prepare(every, setup)
    taken: dict[tuple[str, str, str], list[float]] = {}
    for turn in range(WARM_UP + rounds):
        for (name, path), steps in timed.items():
            for what, step in steps.items():
                took = setup.seconds(step)
                if turn >= WARM_UP:
                    taken.setdefault((name, path, what), []).append(took)
    median = {at: statistics.median(each) for at, each in taken.items()}
    usual = [side for side in timed if side[0] == "fused attention" and side[1] not in LIBRARIES]
    fastest = {what: min(median[*side, what] for side in usual) for what in ("forward", "both")}
    by_name, softmax = {path.name: path for path in PATHS}, known["softmax"].make()
    peak = peak_flops_per_s(torch.device(setup.device), "bfloat16") if setup.device == "cuda" else None
    rows: list[dict[str, Any]] = [
        {"length": length, "operator": name, "path": path, "error": error} for (name, path), error in errors.items()
    ]
    for name, path in timed:
        row: dict[str, Any] = {"length": length, "batch": setup.batch, "operator": name, "path": path}
        row["chosen"] = name in operators and choose(operators[name], case).path.name == path
        counted = operators.get(name, softmax), by_name.get(path, PATHS[-1])
        flops = flops_of(*counted, length, setup) if peak else {}
        for what, best in fastest.items():
            row[f"{what}_ms"] = round(1e3 * median[name, path, what], 3)
            row[f"{what}_ratio"] = round(median[name, path, what] / best, 3)
            row[f"{what}_roofline"] = peak and round(flops[what] / median[name, path, what] / peak, 3)
        row["extra_bytes"] = setup.extra_bytes(every[name, path]["both"])
        rows.append(row)
    return rows


def _prepare(
    every: dict[tuple[str, str], dict[str, Step]], setup: Setup
) -> tuple[dict[tuple[str, str], dict[str, Step]], dict[tuple[str, str], str]]:
    """Return what is timed of each side, and the errors of those that fail, such as for lack of memory."""
    timed, errors = {}, {}
    for side, steps in every.items():
        try:
            timed[side] = {what: setup.prepare(step) for what, step in steps.items()}
        except Exception as error:  # noqa: BLE001  # a kernel that fails is a row, and loses no other
            errors[side] = describe_error(error)
    return timed, errors


def describe(device: str) -> dict[str, object]:
    """Describe the machine and, if `device` is "cuda", its GPU."""
    about = {**machine(), "threads": torch.get_num_threads()}
    if device == "cuda":
        drivers = ask_gpus("driver_version") or [["unknown"]]
        about |= {"gpu": torch.cuda.get_device_name(), "driver": drivers[0][0], **gpu_software(device)}
    return about


def main() -> None:
    """Print one JSON line for the machine and one for each operator, path and length; write them if asked."""
    parser = make_parser(__doc__)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--lengths", type=int, nargs="+")
    parser.add_argument("--flex-lengths", type=int, nargs="*", help="default: all")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--operators", nargs="+", default=list(OPERATORS))
    parser.add_argument("--compiled", action="store_true", help="compile operators")
    asked = parser.parse_args()
    on_gpu = asked.device == "cuda"
    lengths = asked.lengths or ([1024, 2048, 4096, 8192] if on_gpu else [256, 1024])
    flex_lengths = tuple(lengths if asked.flex_lengths is None else asked.flex_lengths)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    setup = Setup(2, 16 if on_gpu else 4, asked.channels, asked.device, dtype, flex_lengths, asked.compiled)
    shape = {**setup._asdict(), "dtype": str(setup.dtype).removeprefix("torch."), "causal": True}
    shape |= {"batch": None, "tokens": TOKENS} if on_gpu else {}
    results = Results({**describe(asked.device), "shape": shape}, asked.write)
    for length in lengths:
        if on_gpu:
            setup = setup._replace(batch=max(1, TOKENS // length))
        for row in measure(length, tuple(asked.operators), asked.rounds, setup):
            results.add(row)


if __name__ == "__main__":
    main()
