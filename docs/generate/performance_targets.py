"""The project's own targets of speed, and whether benchmarks/results meets them, for docs/performance.md."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from markdown import table

Row = Mapping[str, Any]
Files = Mapping[str, Row]
"""Contents of benchmarks/results by name; `chosen` is true for the path that today's rule takes."""
Find = Callable[[Files], list[float]]

_SHORTEST: Final = 2048
"""Tokens from which on operators are compared on a GPU."""
_LONGEST: Final = 16_384
_H200: Final = tuple(f"attention-h200-d{width}{more}" for width in (64, 128) for more in ("", "-columns"))
_WIDE: Final = "attention-h200-d128"
_CPU: Final = "attention-cpu"


class Target(NamedTuple):
    """A limit on numbers that are found in the files."""

    text: str
    limit: float
    find: Find
    least: bool = False
    """True if every number must reach the limit, False if none may exceed it."""

    def line(self, files: Files) -> list[str]:
        """Write the target, the range of what was measured, and whether all of it is within the limit."""
        text = f"{self.text}: at {'least' if self.least else 'most'} {self.limit:,g}"
        if not (found := self.find(files)):
            return [text, "unmeasured", ""]
        low, high = min(found), max(found)
        met = low >= self.limit if self.least else high <= self.limit
        ends = dict.fromkeys(f"{each:,.0f}" if each >= 1000 else f"{each:.3f}" for each in (low, high))
        return [text, " to ".join(ends), "yes" if met else "no"]


def write_targets(files: Files) -> str:
    """Write a table per group."""
    heads = ["target", "measured", "met"]
    return "\n".join(
        f"{title}:\n\n{table(heads, [each.line(files) for each in group])}" for title, group in _TARGETS.items()
    )


def _rows(files: Files, *names: str) -> list[Row]:
    """List the rows without an error; of an operator that two files measure alike, those of the newer file."""
    found: dict[object, Row] = {}
    for name in sorted(set(names) & files.keys(), key=lambda name: str(files[name]["date"])):
        channels = files[name].get("shape", {}).get("channels")
        for place, row in enumerate(files[name]["rows"]):
            if "error" not in row:
                alike = (
                    (row["operator"], row["path"], row["length"], channels) if "forward_ms" in row else (name, place)
                )
                found[alike] = row
    return list(found.values())


def _ms(row: Row, what: str) -> float:
    return row["both_ms"] - row["forward_ms"] if what == "backward" else row[f"{what}_ms"]  # type: ignore[no-any-return]


def _of_fused(names: Sequence[str], operators: str, lengths: Sequence[int] = ()) -> Find:
    """Find forward and backward on the path that is chosen, as a ratio to fused attention."""

    def find(files: Files) -> list[float]:
        rows = [row for row in _rows(files, *names) if row["chosen"] and row["operator"] in operators.split()]
        return [
            row["both_ratio"] for row in rows if (row["length"] in lengths if lengths else row["length"] >= _SHORTEST)
        ]

    return find


def _triton(files: Files, operator: str | None = None) -> list[Row]:
    rows = [row for row in _rows(files, _WIDE) if row["path"] == "triton" and row["length"] >= _SHORTEST]
    return [row for row in rows if operator in (None, row["operator"])]


def _of_triton(operator: str, *passes: str) -> Find:
    """Find the passes of an operator, each as a ratio to softmax by our kernels."""

    def find(files: Files) -> list[float]:
        softmax = {row["length"]: row for row in _triton(files, "softmax")}
        rows = [row for row in _triton(files, operator) if row["length"] in softmax]
        return [_ms(row, what) / _ms(softmax[row["length"]], what) for row in rows for what in passes]

    return find


def _reached(what: str) -> Find:
    """Find the speed of softmax by our kernels as a share of the fastest backend's."""

    def find(files: Files) -> list[float]:
        fused = [row for row in _rows(files, _WIDE) if row["path"].endswith("_ATTENTION")]
        return [
            min(_ms(one, what) for one in fused if one["length"] == row["length"]) / _ms(row, what)
            for row in _triton(files, "softmax")
        ]

    return find


def _field(name: str, field: str, operator: str | None = None) -> Find:
    """Find a number of a file, in rows of all operators or one."""
    return lambda files: [
        row[field] for row in _rows(files, name) if field in row and operator in (None, row.get("operator"))
    ]


def _captured(files: Files) -> list[float]:
    return [row["eager_ms"] / row["ablate_ms"] for row in _rows(files, "training-h200-tiny")]


def _beside_one(name: str, count: str, many: int, field: str) -> Find:
    """Find `field` of `many` workers or processes as a ratio to that of one."""

    def find(files: Files) -> list[float]:
        values = {row[count]: row[field] for row in _rows(files, name) if count in row}
        return [values[many] / values[1]] if {1, many} <= values.keys() else []

    return find


def _beside_softmax(label: str) -> Find:
    """Find the training speed of an operator as a share of softmax's."""

    def find(files: Files) -> list[float]:
        speeds = {row["operator"]: row["tokens_per_s"] for row in _rows(files, _BIG)}
        return [speeds[label] / speeds["softmax"]] if {label, "softmax"} <= speeds.keys() else []

    return find


def _memory(files: Files) -> list[float]:
    """Find what our kernels allocate at 16,384 tokens as a ratio to 2,048, with as many tokens in all."""
    rows = {(row["operator"], row["length"]): row for row in _triton(files)}
    names = [name for name, length in rows if length == _LONGEST and (name, _SHORTEST) in rows]
    return [rows[name, _LONGEST]["extra_bytes"] / rows[name, _SHORTEST]["extra_bytes"] for name in names]


def _of_definition(files: Files) -> list[float]:
    """Find the time of every path that is chosen as a ratio to that of the definition, if both were measured."""
    found = []
    for name, about in files.items():
        if name.startswith("attention-") and not about["shape"].get("compiled"):
            rows = _rows(files, name)
            plain = {(row["operator"], row["length"]): row for row in rows if row["path"] == "reference"}
            found += [
                row["both_ms"] / plain[at]["both_ms"]
                for row in rows
                if row["chosen"] and row["path"] != "reference" and (at := (row["operator"], row["length"])) in plain
            ]
    return found


def _enumerated(files: Files) -> list[float]:
    return [row["in_dumps"] for row in _rows(files, "enumerate-cpu") if row["case"] == "enumerate"]


def _reported(files: Files) -> list[float]:
    return [row["cpu_s"] for row in _rows(files, "report-cpu") if row["name"] == "report"]


_BIG: Final = "training-h200-125m"
_BOTH: Final = (256, 1024)

_TARGETS: Final[Mapping[str, Sequence[Target]]] = {
    "Forward and backward on an H200 in heads of 64 and 128 channels, as a ratio to PyTorch's fused attention": (
        *(
            Target(f"`{name}`", 1.05, _of_fused(_H200, name))
            for name in ("softmax", "integral", "learned_sink", "key_value_bias")
        ),
        Target("`affine_scaled` at 2,048 tokens", 1.1, _of_fused(_H200, "affine_scaled", (2048,))),
        Target("`differential` (2.1 if its heads are padded)", 1.6, _of_fused(_H200, "differential")),
    ),
    "Our Triton kernels on an H200 in heads of 128 channels": (
        Target("speed of `softmax` / fused attention, forward", 0.7, _reached("forward"), least=True),
        Target("speed of `softmax` / fused attention, backward", 0.5, _reached("backward"), least=True),
        Target("time of `principled_ground` / `softmax`", 1.15, _of_triton("principled_ground", "forward", "backward")),
        Target("time of `principled` / `softmax`, forward", 1.9, _of_triton("principled", "forward")),
        Target("time of `principled` / `softmax`, backward", 2.0, _of_triton("principled", "backward")),
        *(
            Target(f"time of `{name}` / `softmax`", 1.35, _of_triton(name, "forward", "backward"))
            for name in ("ssa", "cog", "sigmoid")
        ),
        Target("extra memory at 16,384 tokens / 2,048, with as many tokens in all", 1.01, _memory),
    ),
    "Training on an H200": (
        Target("speed of `softmax` / the loop by hand, 125M", 0.95, _field(_BIG, "ratio", "softmax"), least=True),
        Target("speed of Affine-Scaled / `softmax`, 125M", 0.97, _beside_softmax("Affine-Scaled"), least=True),
        Target("speed of Principled with a ground alone / `softmax`, 125M", 0.9, _beside_softmax("Principled ground"),
               least=True),
        Target("speed of Principled / `softmax`, 125M", 0.75, _beside_softmax("Principled"), least=True),
        Target("tokens per second of `softmax`, 125M", 400_000, _field(_BIG, "tokens_per_s", "softmax"), least=True),
        Target("speed of a small step, captured / eager", 3, _captured, least=True),
        Target("speed of eight seeds as one model (gradients only) / one after the other", 3,
               _field("vectorised-h200", "ratio"), least=True),
        Target("speed of eight trials side by side / one alone", 3,
               _beside_one("packing-h200", "processes", 8, "steps_per_s"), least=True),
    ),
    "Forward and backward on a CPU, as a ratio to PyTorch's fused attention": (
        Target("`principled`, 256 tokens", 3.5, _of_fused([_CPU], "principled", (256,))),
        Target("`principled`, 1,024 tokens", 4, _of_fused([_CPU], "principled", (1024,))),
        Target("`softmax` and `integral`", 1.1, _of_fused([_CPU], "softmax integral", _BOTH)),
        Target("`affine_scaled`", 1.1, _of_fused([_CPU], "affine_scaled", _BOTH)),
        Target("sinks: `learned_sink`, `off_by_one`, `key_bias`", 1.15,
               _of_fused([_CPU], "learned_sink off_by_one key_bias", _BOTH)),
        Target("`integral_weights` of S = 8 signals (1.1 S)", 8.8, _of_fused([_CPU], "integral_weights", _BOTH)),
        Target("`ssa`, `cog`, `sigmoid`", 2.5, _of_fused([_CPU], "ssa cog sigmoid", _BOTH)),
        Target("`entmax15`, `sparsemax`", 4, _of_fused([_CPU], "entmax15 sparsemax", _BOTH)),
        Target("linear kernels, 1,024 tokens", 0.5,
               _of_fused([_CPU], "linear_elu identity mlp_kernel cosformer", (1024,))),
    ),
    "Training and trials on two CPU cores": (
        Target("speed of every operator / the loop by hand", 0.95, _field("training-cpu", "ratio"), least=True),
        Target("trials per second of two workers / of one", 1.8,
               _beside_one("overhead-cpu", "workers", 2, "trials_per_s"), least=True),
        Target("ms per trial beside training and evaluation", 50, _field("overhead-cpu", "overhead_ms_median")),
        Target("microseconds to log five metrics in a step of one's own", 250, _field("overhead-cpu", "own_step_us")),
        Target("seconds of the same command on a finished grid", 3, _field("overhead-cpu", "rerun_s")),
        Target("ms per trial that compare its process", 2, _field("overhead-cpu", "process_ms_median")),
    ),
    "Large grids, in processor time": (
        Target("time of enumerating 100,000 trials / `json.dumps` of them", 1, _enumerated),
        Target("seconds of the report of 6,000 cells", 20, _reported),
    ),
    "All machines, forward and backward": (
        Target("time of the path that is chosen / of the definition", 1, _of_definition),
    ),
}  # fmt: skip
