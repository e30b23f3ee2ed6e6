"""docs/performance.md and its pictures, from the files that the benchmarks wrote to benchmarks/results."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from figures import COLOURS, draw_picture
from markdown import fill_template, table
from matplotlib.figure import SubFigure
from performance_targets import write_targets

from ablate.variants.papers.catalogue import catalogue
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import choose
from ablate.variants.paths.triton_ops import TILES

RESULTS: Final = Path(__file__).parent.parent.parent / "benchmarks" / "results"
_FUSED: Final = "fused attention"
_USUAL: Final = 4096
"""Tokens at which operators are compared on a GPU."""

Row = Mapping[str, Any]


def make_performance_page() -> dict[str, str]:
    """Write the page and a picture per file and length, by path below docs/."""
    pictures: dict[str, str] = {}
    parts: dict[str, list[str]] = {name: [] for name in ("sections", *_WRITERS)}
    files = {path.stem: _read(path) for path in RESULTS.glob("*.json")}
    parts["summary"] = [_write_summary([about for name, about in files.items() if name.startswith("attention-")])]
    parts["targets"] = [write_targets(files)]
    for name, about in sorted(files.items()):
        kind = name.partition("-")[0]
        if kind == "attention":
            parts["sections"].append(_write_attention(name, about, pictures))
        elif kind in _WRITERS:
            parts[kind].append(_WRITERS[kind](name, about))
    texts = {name: "\n".join(part) for name, part in parts.items()}
    return {"performance.md": fill_template("performance", texts), **pictures}


def _read(path: Path) -> Row:
    """Read a file; `chosen` becomes what today's rule says."""
    about = json.loads(path.read_text(encoding="utf-8"))
    for row in _measured(about) if path.stem.startswith("attention-") else ():
        row["chosen"] = _is_chosen(row, about)
    return about  # type: ignore[no-any-return]


def _measured(about: Row) -> list[dict[str, Any]]:
    return [row for row in about["rows"] if "error" not in row]


def _write_summary(files: Sequence[Row]) -> str:
    """Write forward and backward on the path that is chosen, an operator per row; of a GPU, two lengths."""
    found: dict[str, dict[str, str]] = {}
    heads: dict[str, None] = {}
    for about in sorted(files, key=lambda about: ("gpu" in about, about["shape"]["channels"], about["date"])):
        shape, rows = about["shape"], [row for row in _measured(about) if row["chosen"]]
        if shape.get("compiled"):
            continue
        longest = max((row["length"] for row in rows), default=0)
        machine = about.get("gpu", "CPU").removeprefix("NVIDIA ")
        for row in rows:
            if "gpu" not in about or row["length"] in (_USUAL, longest):
                column = f"{machine} d={shape['channels']} T={row['length']:,}"
                heads[column] = None
                found.setdefault(row["operator"], {})[column] = f"{row['both_ratio']:.2f}"
    names = [name for name in catalogue() if name in found]
    rows = [[name, *(found[name].get(column, "") for column in heads)] for name in names]
    return table(["operator", *heads], rows)


def _write_attention(name: str, about: Row, pictures: dict[str, str]) -> str:
    """Write a table of forward and one of both passes, with a column per length, and pictures of both passes."""
    found: dict[tuple[str, str], dict[int, Row]] = {}
    for row in sorted(_measured(about), key=lambda row: row["operator"] != _FUSED):
        found.setdefault((row["operator"], row["path"]), {})[row["length"]] = row
    lengths = sorted({length for by_length in found.values() for length in by_length})
    longest, on_gpu = lengths[-1], "gpu" in about
    heads = ["operator", "path", *map(str, lengths)]
    heads += [f"share of peak at {longest}", "extra MiB"] if on_gpu else []
    parts = [_describe(name, about)]
    for what, title in (("forward", "Forward"), ("both", "Forward and backward")):
        lines = []
        for (operator, path), by_length in found.items():
            ratios = [_write_ratio(by_length[each], what) if each in by_length else "" for each in lengths]
            line = [operator if operator == _FUSED else f"`{operator}`", path, *ratios]
            if on_gpu and (last := by_length.get(longest)) is not None:
                line += [f"{last[f'{what}_roofline']:.0%}", f"{last['extra_bytes'] / 2**20:,.0f}"]
            lines.append(line + [""] * (len(heads) - len(line)))
        parts.append(f"{title}, by tokens:\n\n{table(heads, lines)}")
    for length in [min(_USUAL, longest)] if on_gpu else lengths:
        bars: dict[str, dict[str, Row]] = {}
        for (operator, path), by_length in found.items():
            if operator != _FUSED and length in by_length:
                bars.setdefault(operator, {})[path] = by_length[length]
        picture = f"performance/{name}-{length}.svg"
        title = f"Forward and backward at {length:,} tokens, as a ratio to PyTorch's fused attention"
        pictures[picture] = draw_picture(title, [_Bars(bars)])
        parts.append(f"![{title}, by operator]({picture})\n")
    return "\n".join(parts)


def _write_ratio(row: Row, what: str) -> str:
    return f"{row[f'{what}_ratio']:.2f}{' ^' if row['chosen'] else ''}"


def _is_chosen(row: Row, about: Row) -> bool:
    """Return True if today's rule chooses the path of a row."""
    if row["operator"] == _FUSED:
        return False
    shape, length = about["shape"], row["length"]
    device = "cuda" if "gpu" in about else "cpu"
    dtype, compiled = getattr(torch, shape["dtype"]), shape.get("compiled", False)
    case = Case(length, length, device, dtype, compiled=compiled, channels=shape["channels"])
    return choose(catalogue()[row["operator"]].make(), case).path.name == row["path"]


def _describe(name: str, about: Row) -> str:
    shape, clock = about["shape"], "time of the GPU between two events" if "gpu" in about else _PROCESSOR
    batch = f"batch {shape['batch']}" if shape["batch"] else f"batches of {shape['tokens']:,} tokens"
    sizes = f"{batch}, {shape['heads']} heads of {shape['channels']} channels, {shape['dtype']}, causal"
    sizes += "; operators compiled, each step one CUDA graph" if shape.get("compiled") else ""
    return f"{_describe_machine(name, about)}; {sizes}.\n{_MEDIANS.format(clock=clock, **about)}"


_PROCESSOR: Final = "processor time of one process"
_MEDIANS: Final = "Medians of {clock}; other work ran beside it (load {load:.1f}).\n"


def _describe_machine(name: str, about: Row) -> str:
    device, commit = about.get("gpu", about["cpu"]), about["commit"] or "unknown"
    threads = f"{about['threads']} thread{'' if about['threads'] == 1 else 's'}"
    versions = f"torch {about['torch']}, Python {about['python']}, {threads}"
    source = f"`benchmarks/results/{name}.json`, {about['date'][:10]}, commit {commit[:8]}"
    return f"### {name}: {device}\n\n{source}: {versions}"


def _write_exactness(name: str, about: Row) -> str:
    rows = _measured(about)
    lines = []
    for path, dtype in dict.fromkeys((row["path"], row["dtype"]) for row in rows):
        if (path, dtype) == ("reference", "float32"):  # others are compared with it
            continue
        same = [row for row in rows if (row["path"], row["dtype"]) == (path, dtype)]
        worst = max(same, key=lambda row: row["share_of_budget"])
        lines.append([
            path, dtype, f"{len({row['operator'] for row in same})}", f"{len(same)}",
            f"{sum(row['within'] for row in same)}", f"{worst['share_of_budget']:.0%}",
            f"`{worst['worst']}` of `{worst['operator']}`",
            f"{max(row['largest_error'] / row['error_of_formula'] for row in same):.1f}",
            f"{sum(row['repeats'] for row in same)}",
        ])  # fmt: skip
    heads = ["path", "precision", "operators", "cases", "within budget", "largest share of budget", "where"]
    heads += ["times formula", "same bits twice"]
    failed = len(about["rows"]) - len(rows)
    return f"{_describe_machine(name, about)}; {failed} cases failed.\n\n{table(heads, lines)}"


def _write_tiles(name: str, about: Row) -> str:
    rows = _measured(about)
    lines = []
    for width, gated, kernel in dict.fromkeys((row["width"], row["gated"], row["kernel"]) for row in rows):
        same = [row for row in rows if (row["width"], row["gated"], row["kernel"]) == (width, gated, kernel)]
        by_tile = {tuple(row["tile"]): row["ms"] for row in same}
        chosen, fastest = tuple(getattr(TILES["half", width, gated], kernel)), min(by_tile, key=by_tile.__getitem__)
        gate, times = "yes" if gated else "no", [f"{by_tile[each]:.2f}" for each in (chosen, fastest)]
        lines.append([str(width), gate, kernel, str(len(by_tile)), str(chosen), *times, f"{max(by_tile.values()):.2f}"])
    heads = ["channels", "gate", "kernel", "tiles", "in use", "in use, ms", "fastest, ms", "slowest, ms"]
    sizes = f"{about['batch']} sequences of {about['length']:,} tokens, {about['heads']} heads, bfloat16, causal"
    return f"{_describe_machine(name, about)}; {sizes}.\n\n{table(heads, lines)}"


def _write_training(name: str, about: Row) -> str:
    rows = _measured(about)
    if not rows:
        return f"{_describe_machine(name, about)}. No operator could be measured; the file has the errors.\n"
    sides = {"by hand": "by_hand_ms", "`ablate`": "ablate_ms", "eager": "eager_ms"}
    sides = {side: field for side, field in sides.items() if any(field in row for row in rows)}
    lines = []
    for row in rows:
        used = "" if row["utilisation"] is None else f"{row['utilisation']:.0%}"
        times = [f"{row[field]:.2f}" for field in sides.values()]
        lines.append([row["operator"], *times, f"{row['ratio']:.2f}", f"{row['tokens_per_s']:,}", used])
    heads = ["operator", *(f"{side}, ms" for side in sides)]
    heads += ["`ablate`'s speed / by hand", "tokens per s", "utilisation"]
    clock = "wall time of turns of ten steps" if "gpu" in about else f"{_PROCESSOR} over turns of ten steps"
    size = f"size {rows[0]['size']}, {about['steps']} steps, batches of {rows[0]['batch']} x {rows[0]['length']} tokens"
    parts = [f"{_describe_machine(name, about)}; {size}.", _MEDIANS.format(clock=clock, **about), table(heads, lines)]
    return "\n".join(parts)


def _chosen(found: Mapping[str, Row]) -> Row | None:
    """Return the row of the path that is chosen; None if it was not measured, as the definition of long sequences."""
    return next((row for row in found.values() if row["chosen"]), None)


def _write_overhead(name: str, about: Row) -> str:
    own, program, step, line, one, two, again, state = about["rows"]
    speed = two["trials_per_s"] / one["trials_per_s"]
    sizes = f"{one['trials']} trials of {one['train_s_mean']:.2f} s, load {about['load']:.1f}"
    return (
        f"{_describe_machine(name, about)}; {sizes}.\n\n"
        f"Beside training and evaluation, a trial costs {one['overhead_ms_median']:.0f} ms (median of one worker).\n"
        f"An experiment of one's own costs {own['overhead_ms_median']:.0f} ms, "
        f"and logging five metrics {step['own_step_us']:.0f} microseconds.\n"
        f"A program costs {program['overhead_ms_median']:.0f} ms, and logging them {line['own_step_us']:.0f}.\n"
        f"Two workers finish {speed:.2f} times as many trials a second as one.\n"
        f"The same command on the finished grid takes {again['rerun_s']:.1f} s.\n"
        f"Comparing the process after a trial takes {state['process_ms_median']:.1f} ms of processor time.\n"
    )


def _write_vectorised(name: str, about: Row) -> str:
    clock = "wall time" if "gpu" in about else _PROCESSOR
    speeds = " and ".join(f"{row['ratio']:.2f} ({row['width']} channels)" for row in about["rows"])
    return (
        f"{_describe_machine(name, about)}.\n{_MEDIANS.format(clock=clock, **about)}\n"
        f"Eight models of two layers in one `torch.func.vmap` run at {speeds} times the speed of one after the other.\n"
    )


def _write_packing(name: str, about: Row) -> str:
    one, *others = about["rows"]
    speeds = [f"{row['processes']} trials: {row['steps_per_s'] / one['steps_per_s']:.2f}" for row in others]
    return (
        f"{_describe_machine(name, about)}; {about['steps']} steps, load {about['load']:.1f}.\n\n"
        f"Steps per second of all trials side by side, as a ratio to one trial alone: {', '.join(speeds)}.\n"
    )


def _write_enumerate(name: str, about: Row) -> str:
    row = next(row for row in about["rows"] if row["case"] == "enumerate")
    return (
        f"{_describe_machine(name, about)}; load {about['load']:.1f}.\n\n"
        f"Enumerating {row['trials']:,} trials takes {row['cpu_s']:.1f} s of processor time, "
        f"{row['in_dumps']:.2f} times that of `json.dumps` of them.\n"
    )


def _write_report(name: str, about: Row) -> str:
    rows = {row["name"]: row for row in about["rows"]}
    return (
        f"{_describe_machine(name, about)}; load {about['load']:.1f}.\n\n"
        f"The report of {about['cells']:,} cells of {about['seeds']} seeds takes {rows['report']['cpu_s']:.1f} s of "
        f"processor time and has {rows['report_size']['bytes'] / 1e6:.1f} MB.\n"
    )


_WRITERS: Final = {
    "exactness": _write_exactness,
    "tiles": _write_tiles,
    "training": _write_training,
    "overhead": _write_overhead,
    "packing": _write_packing,
    "vectorised": _write_vectorised,
    "enumerate": _write_enumerate,
    "report": _write_report,
}


class _Bars(NamedTuple):
    """A bar per operator on the path that is chosen, and a mark at its definition."""

    rows: Mapping[str, Mapping[str, Row]]
    """By operator and path."""

    @property
    def height(self) -> float:
        return 0.2 * len(self.rows) + 0.6

    def draw(self, figure: SubFigure) -> None:
        height = self.height
        chosen = {name: best for name, found in self.rows.items() if (best := _chosen(found)) is not None}
        axes = figure.add_axes((0.25, 0.45 / height, 0.72, 1 - 0.5 / height))
        axes.set_xscale("log", base=2)
        for place, (name, best) in enumerate(chosen.items()):
            ratio = best["both_ratio"]
            axes.plot((1, ratio), (place, place), color=COLOURS["mark"], linewidth=6, solid_capstyle="butt")
            axes.text(ratio * (1.04 if ratio >= 1 else 0.96), place, f"{ratio:.2f}", va="center", fontsize=6.5,
                      ha="left" if ratio >= 1 else "right")  # fmt: skip
            if best["path"] != "reference" and (definition := self.rows[name].get("reference")):
                axes.plot(definition["both_ratio"], place, "|", color=COLOURS["plain"], markersize=8)
        axes.axvline(1, color=COLOURS["plain"], linewidth=0.6)
        axes.set(ylim=(len(chosen) - 0.4, -0.6), yticks=range(len(chosen)))
        axes.set_yticklabels([f"{name} ({best['path']})" for name, best in chosen.items()], fontsize=6.5)
        axes.tick_params(length=0)
        ticks = [2.0**power for power in range(-2, 5)]
        axes.set_xlim(0.22, 17)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
        mark = ", mark: the definition" if any("reference" in found for found in self.rows.values()) else ""
        axes.set_xlabel(f"time / time of fused attention; bar: path that is chosen{mark}", fontsize=7)
