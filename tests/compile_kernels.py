"""Compile the Triton kernels for an H100 without a GPU; print registers, stack and shared memory of each as JSON.

PYTHONPATH=src python tests/compile_kernels.py > tests/variants/h100_kernels.json     cases that need most registers
PYTHONPATH=src python tests/compile_kernels.py NUMBER                                 one of these
PYTHONPATH=src python tests/compile_kernels.py --all                                  every switch, which takes an hour
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

os.environ["TRITON_INTERPRET"] = "0"  # counts when triton is imported

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ablate.variants.paths.triton_backward import backward_keys, backward_queries
from ablate.variants.paths.triton_kernels import forward
from ablate.variants.paths.triton_ops import Tile, find_tiles

KERNELS = {"forward": forward, "queries": backward_queries, "keys": backward_keys}
SINGLE = "*fp32"
RULES = (
    ("exponential", "total"), ("exponential", "ground"), ("exponential", "sink"), ("signed_exponential", "total"),
    ("ssa", "total"), ("ssa", "ground"), ("sigmoid", "total"), ("sigmoid", "ground"), ("sigmoid", "none"),
    ("elu_plus_one", "total"), ("elu_plus_one", "ground"), ("elu_plus_one", "none"),
)  # fmt: skip


class Case(NamedTuple):
    """Switches of a kernel."""

    kernel: str
    dtype: str
    width: int
    gated: bool
    score: str
    normalised: str
    causal: bool = True
    shifted: bool = False
    masked: bool = False


def all_cases() -> Iterator[Case]:
    """Yield every case that an operator can have."""
    for kernel, dtype, width, gated in product(KERNELS, ("bf16", "fp16", "fp32"), (16, 64, 80, 128), (False, True)):
        for (score, normalised), causal, shifted, masked in product(RULES, *((False, True),) * 3):
            if shifted <= (score == "sigmoid") and masked >= (not causal):
                yield Case(kernel, dtype, width, gated, score, normalised, causal, shifted, masked)


SAMPLE = [
    *(Case(*each, "ssa", "ground") for each in product(KERNELS, ("bf16", "fp32"), (64, 128), (False, True))),
    *(Case(kernel, "bf16", 128, gated=True, score="sigmoid", normalised="ground", shifted=True) for kernel in KERNELS),
    *(Case(kernel, "bf16", 128, gated=True, score="exponential", normalised="sink") for kernel in KERNELS),
]
"""Cases of every entry of `TILES` that need most registers and shared memory."""


def compile_kernel(case: Case, tile: Tile) -> dict[str, int]:
    """Compile; return registers, bytes of stack and shared memory."""
    own, width, gate_width = f"*{case.dtype}", case.width, case.width * case.gated
    gate = own if case.gated else SINGLE
    results = {
        "forward": (SINGLE, SINGLE, SINGLE, SINGLE),
        "queries": (own, gate, SINGLE, SINGLE, SINGLE, SINGLE, SINGLE),
        "keys": (own, own, gate),
    }[case.kernel]
    types = {
        "tensors": (own, own, own, gate, gate), "numbers": (SINGLE,) * 5, "shown": "*u8" if case.masked else SINGLE,
        "slopes": (SINGLE,) * 4, "doutput": own, "results": results, "sizes": ("i32", "i32", "fp32"),
    }  # fmt: skip
    blocks = (max(16, triton.next_power_of_2(each)) for each in (width, width, gate_width))
    precision = "ieee" if own == SINGLE else "tf32"
    constants = (
        width, width, gate_width, *blocks, tile.rows, tile.keys, case.score, case.normalised, case.causal, case.gated,
        case.shifted, case.masked, precision, True,
    )  # fmt: skip
    kernel = KERNELS[case.kernel]
    arguments = kernel.arg_names[: -len(constants)]
    signature = {argument: types.get(argument, ("i32",) * 3) for argument in arguments}
    attributes = {
        place: [["tt.divisibility", 16]]
        for at, argument in enumerate(arguments)
        for place in places(at, signature[argument])
        if argument != "sizes"
    }
    own_names = range(len(arguments), len(kernel.arg_names))
    source = ASTSource(
        kernel,
        signature=signature | dict.fromkeys(kernel.arg_names[len(arguments) :], "constexpr"),
        constexprs={(at,): value for at, value in zip(own_names, constants, strict=True)},
        attrs=attributes,
    )
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    return {**read_usage(compiled.asm["cubin"]), "shared": compiled.metadata.shared}


def places(at: int, kind: Any) -> list[tuple[int, ...]]:
    """Return where the values of an argument are: itself, or its parts."""
    return [(at, part) for part in range(len(kind))] if isinstance(kind, tuple) else [(at,)]


def read_usage(cubin: bytes) -> dict[str, int]:
    """Return registers and bytes of stack that a thread uses, by NVIDIA's own tool, which Triton brings.

    The stack holds spilled registers: no kernel has an array or a call. ptxas reports the same number of bytes.
    """
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        report = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack = re.findall(r"REG:(\d+) STACK:(\d+)", report)[-1]
    return {"registers": int(registers), "stack": int(stack)}


def hash_sources() -> str:
    """Hash the source of the kernels, their tiles and this file."""
    files = [Path(__file__), *sorted((Path(__file__).parent.parent / "variants" / "paths").glob("triton_*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def compile_case(case: Case) -> dict[str, Any]:
    """Compile a case with its tile; return its switches and what it uses."""
    tiles = find_tiles((case.width, case.width, case.width * case.gated), single=case.dtype == "fp32")
    return {**case._asdict(), **compile_kernel(case, getattr(tiles, case.kernel))}


def main() -> None:
    """Compile what the arguments ask for."""
    asked = sys.argv[1:]
    cases = all_cases() if asked == ["--all"] else [SAMPLE[int(asked[0])]] if asked and asked[0].isdigit() else SAMPLE
    rows = ",\n".join(json.dumps(compile_case(case)) for case in cases)
    sys.stdout.write(f'{{"sources": "{hash_sources()}", "triton": "{triton.__version__}", "kernels": [\n{rows}\n]}}\n')


if __name__ == "__main__":
    main()
