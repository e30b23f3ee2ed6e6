"""Compile the Triton kernels for an H100 without a GPU; print registers spilled and shared memory of each as JSON."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from variants.paths.triton_backward import backward_keys, backward_queries
from variants.paths.triton_kernels import forward
from variants.paths.triton_ops import TILES, Tile

KERNELS = {"forward": forward, "queries": backward_queries, "keys": backward_keys}
HALF, SINGLE = "*bf16", "*fp32"


def compile_kernel(name: str, width: int, tile: Tile, *, gated: bool) -> dict[str, int]:
    """Compile for heads of `width` channels in bfloat16; return bytes that a thread spills and shared memory."""
    gate = HALF if gated else SINGLE
    results = {
        "forward": (HALF, SINGLE, SINGLE, SINGLE),
        "queries": (HALF, gate, SINGLE, SINGLE, SINGLE, SINGLE),
        "keys": (HALF, HALF, gate),
    }[name]
    types = {
        "tensors": (HALF, HALF, HALF, gate, gate), "numbers": (SINGLE,) * 5, "shown": SINGLE, "slopes": (SINGLE,) * 3,
        "doutput": HALF, "results": results, "sizes": ("i32", "i32", "fp32"),
    }  # fmt: skip
    shape = (width, width, width * gated, width, width, max(16, width * gated), tile.rows, tile.keys)
    constants = (*shape, "exponential", "ground", True, gated, False, False, "tf32", True)
    kernel = KERNELS[name]
    arguments = kernel.arg_names[: -len(constants)]
    signature = {argument: types.get(argument, ("i32",) * 3) for argument in arguments}
    attributes = {
        place: [["tt.divisibility", 16]]
        for at, argument in enumerate(arguments)
        for place in places(at, signature[argument])
        if argument != "sizes"
    }
    own = range(len(arguments), len(kernel.arg_names))
    source = ASTSource(
        kernel,
        signature=signature | dict.fromkeys(kernel.arg_names[len(arguments) :], "constexpr"),
        constexprs={(at,): value for at, value in zip(own, constants, strict=True)},
        attrs=attributes,
    )
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    return {"spilled": stack_bytes(compiled.asm["cubin"]), "shared": compiled.metadata.shared}


def places(at: int, kind: Any) -> list[tuple[int, ...]]:
    """Return where the values of an argument are: itself, or its parts."""
    return [(at, part) for part in range(len(kind))] if isinstance(kind, tuple) else [(at,)]


def stack_bytes(cubin: bytes) -> int:
    """Return the bytes of stack that a thread uses, by NVIDIA's own tool, which Triton brings."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        report = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"STACK:(\d+)", report)[-1])


def main() -> None:
    """Compile every kernel with its tile for half precision."""
    assert os.environ["TRITON_INTERPRET"] == "0"
    for (precision, width, gated), tiles in TILES.items():
        if precision == "half":
            for name in KERNELS:
                used = compile_kernel(name, width, getattr(tiles, name), gated=gated)
                sys.stdout.write(json.dumps({"kernel": name, "width": width, "gated": gated, **used}) + "\n")


if __name__ == "__main__":
    main()
