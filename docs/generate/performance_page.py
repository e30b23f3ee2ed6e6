"""docs/performance.md and its pictures, from the files that benchmarks/attention.py wrote to benchmarks/results."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from figures import COLOURS, draw_picture
from markdown import fill_template, table
from matplotlib.figure import SubFigure

RESULTS: Final = Path(__file__).parent.parent.parent / "benchmarks" / "results"
_FUSED: Final = "fused attention"

Row = Mapping[str, Any]


def make_performance_page() -> dict[str, str]:
    """Write the page and a picture per file and length, by path below docs/."""
    pictures: dict[str, str] = {}
    sections = []
    on_gpu = False
    for file in sorted(RESULTS.glob("attention-*.json")):
        about = json.loads(file.read_text(encoding="utf-8"))
        on_gpu = on_gpu or "gpu" in about
        sections.append(_write_section(file.stem, about, pictures))
    missing = "" if on_gpu else "No accelerator was measured. The command for one is `--device cuda`.\n\n"
    return {
        "performance.md": fill_template("performance", {"missing": missing, "sections": "\n".join(sections)}),
        **pictures,
    }


def _write_section(name: str, about: Row, pictures: dict[str, str]) -> str:
    rows: Sequence[Row] = about["rows"]
    lengths = sorted({row["length"] for row in rows})
    operators = dict.fromkeys(row["operator"] for row in rows if row["operator"] != _FUSED)
    lines = [_write_line(operator, lengths, rows) for operator in operators]
    heads = [
        "operator",
        "path",
        *(f"{length}: {what}" for length in lengths for what in ("forward", "both", "definition")),
    ]
    parts = [_describe(name, about), table(heads, lines)]
    for length in lengths:
        picture = f"performance/{name}-{length}.svg"
        title = f"Forward and backward at {length:,} tokens, as a ratio to PyTorch's fused attention"
        bars = {
            operator: {
                row["path"]: row["both_ratio"] for row in rows if (row["operator"], row["length"]) == (operator, length)
            }
            for operator in operators
        }
        chosen = {row["operator"]: row["path"] for row in rows if row["length"] == length and row["chosen"]}
        pictures[picture] = draw_picture(title, [_Bars(bars, chosen)])
        parts.append(f"![{title}, by operator]({picture})\n")
    return "\n".join(parts)


def _describe(name: str, about: Row) -> str:
    shape, device = about["shape"], about.get("gpu", about.get("device", about.get("cpu")))
    clock = "time of the GPU between two events" if "gpu" in about else "processor time of one process"
    versions = f"torch {about['torch']}, Python {about['python']}, {about['threads']} thread"
    sizes = f"batch {shape['batch']}, {shape['heads']} heads of {shape['channels']} channels, {shape['dtype']}, causal"
    return (
        f"## {device}\n\n"
        f"`benchmarks/results/{name}.json`, {about['date'][:10]}, commit {about['commit'][:8]}: {versions}; {sizes}.\n"
        f"Medians of {clock}; other work ran beside it (load {about['load']:.1f}).\n"
    )


def _write_line(operator: str, lengths: Sequence[int], rows: Sequence[Row]) -> list[str]:
    cells, paths = [], []
    for length in lengths:
        found = {row["path"]: row for row in rows if (row["operator"], row["length"]) == (operator, length)}
        best = next(row for row in found.values() if row["chosen"])
        paths.append(best["path"])
        cells += [f"{best['forward_ratio']:.2f}", f"{best['both_ratio']:.2f}"]
        cells.append(f"{found['reference']['both_ratio']:.2f}" if "reference" in found else "")
    return [f"`{operator}`", ", ".join(dict.fromkeys(paths)), *cells]


class _Bars(NamedTuple):
    """A bar per operator on the path that is chosen, and a mark at its definition."""

    ratios: Mapping[str, Mapping[str, float]]
    chosen: Mapping[str, str]

    @property
    def height(self) -> float:
        return 0.2 * len(self.ratios) + 0.6

    def draw(self, figure: SubFigure) -> None:
        """Draw horizontal bars on a log axis."""
        height, names = self.height, list(self.ratios)
        axes = figure.add_axes((0.25, 0.45 / height, 0.72, 1 - 0.5 / height))
        axes.set_xscale("log", base=2)
        for place, name in enumerate(names):
            ratio = self.ratios[name][self.chosen[name]]
            axes.plot((1, ratio), (place, place), color=COLOURS["mark"], linewidth=6, solid_capstyle="butt")
            axes.text(ratio * (1.04 if ratio >= 1 else 0.96), place, f"{ratio:.2f}", va="center", fontsize=6.5,
                      ha="left" if ratio >= 1 else "right")  # fmt: skip
            if "reference" in self.ratios[name] and self.chosen[name] != "reference":
                axes.plot(self.ratios[name]["reference"], place, "|", color=COLOURS["plain"], markersize=8)
        axes.axvline(1, color=COLOURS["plain"], linewidth=0.6)
        axes.set(ylim=(len(names) - 0.4, -0.6), yticks=range(len(names)))
        axes.set_yticklabels([f"{name} ({self.chosen[name]})" for name in names], fontsize=6.5)
        axes.tick_params(length=0)
        ticks = [2.0**power for power in range(-2, 5)]
        axes.set_xlim(0.22, 17)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
        axes.set_xlabel("time / time of fused attention; bar: path that is chosen, mark: the definition", fontsize=7)
