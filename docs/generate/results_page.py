"""docs/results.md and its pictures, from the files in results/.

`about.md` of each result is its section. A line of it that is one of these calls is replaced:

    {verdicts GRID}                  every cell against the baseline, sorted by effect
    {verdicts GRID length=64}        the same at another point of the measure
    {figure GRID}                    the same as a picture
    {runs GRID}                      every run as a picture, also of controls
    {contrasts GRID}                 what each axis of two levels does, with seeds as the sample
    {main GRID ...}                  the same as a picture, a panel per grid
    {effects GRID}                   every level of each axis against its first, with seeds as the sample
    {means GRID sink_share}          the measure and probes of every cell, compared with nothing
    {means GRID sink_share:position=2}    the same for a probe that has several positions
    {numbers GRID}                   learned numbers: the range over runs, layers and heads
    {checks GRID}                    what each check of a claim rests on
    {controls GRID}                  the measure of every control
    {costs GRID}                     parameters, time per step and memory of every cell
    {cost GRID ...}                  trials, hours, device and versions
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import polars as pl
from figures import Lines, Panel, draw_picture
from markdown import fill_template, table
from result_controls import write_controls
from result_costs import describe_cost, write_costs
from result_pictures import Forest, Values
from result_words import name_measure, say_change, say_measure, say_number, say_size

from ablate.grid.errors import NotFoundError, SpecError
from ablate.papers.results.grid_results import GridResult, read
from ablate.runners.cli.cell_tables import format_p
from ablate.runners.output import format_count
from ablate.store.analysis.effects import levels_of
from ablate.store.analysis.headline import LEGEND, count_headlines, mark_checks
from ablate.store.analysis.judge import add_checks
from ablate.store.analysis.verdicts import GridMeasure, baseline_rows, compare_runs
from ablate.store.statistics import seed_contrasts
from ablate.store.statistics.verdict import CLAIMS

RESULTS: Final = Path(__file__).parent.parent.parent / "results"
MOST_ROWS: Final = 40
"""Cells of a picture; if there are more, it shows levels of axes."""
_CALL: Final = re.compile(r"^\{(\w+) ([^}]+)\}$", re.MULTILINE)
_WORDS: Final = ("better", "worse", "real, size unproven", "equivalent", "undecided", "off", "no verdict")


def make_results_page() -> dict[str, str]:
    """Write the page and its pictures, by path below docs/."""
    pictures: dict[str, str] = {}
    places = sorted(RESULTS.glob("*/about.md"), key=_place)
    texts = {
        "summary": "\n".join(map(_summarise, places)).rstrip("\n"),
        "sections": "\n".join(_fill(about, pictures) for about in places),
    }
    return {"results.md": fill_template("results", texts), **pictures}


def _summarise(about: Path) -> str:
    """Count the verdicts of every table of cells or effects at the planned measure, with the heading before it."""
    text = about.read_text(encoding="utf-8")
    title, rows = text.partition("\n")[0].lstrip("# "), []
    for call in _CALL.finditer(text):
        if call[1] not in ("verdicts", "effects") or " " in call[2]:
            continue
        result = read(about.parent, call[2])
        measure, judged = result.measure(), call[1] == "verdicts"
        found = _verdicts(result, measure) if judged else _contrasts(result, measure, every=True)
        heading = re.findall(r"^#+ (.+)$", text[: call.start()], re.MULTILINE)[-1]
        anchor = re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
        bases = baseline_rows(result.compared_runs(measure), measure) if judged else []
        against = bases[0]["label"] if len(bases) == 1 else "each level's own" if judged else "first level"
        counts = [str(found.filter(verdict=word).height or "") for word in _WORDS[:5]]
        unit = result.header["measure"]["unit"] if measure.scale == "linear" else ""
        finds = " ".join(filter(None, (_range_found(found, measure), unit))) if counts[-1] else ""
        rows.append((f"[{heading}](#{anchor})", call[2], against, *counts, finds))
    heads = (
        title,
        "grid",
        "against",
        *(word.partition(",")[0] for word in _WORDS[:5]),
        "undecided, found with 80 % power",
    )
    return table(heads, rows)


def _range_found(found: pl.DataFrame, measure: GridMeasure) -> str:
    """Return the smallest and the largest difference that undecided cells would have shown with 80 % power."""
    sizes = found.filter(verdict="undecided")["detectable"].drop_nulls().sort().to_list()
    return " to ".join(dict.fromkeys(say_size(each, measure) for each in (*sizes[:1], *sizes[-1:])))


def _place(about: Path) -> tuple[bool, bool, str]:
    """Put our own questions first, those with checks before the others."""
    name = about.parent.name
    return name != "claims", name != "principled", name


def _fill(about: Path, pictures: dict[str, str]) -> str:
    def answer(call: re.Match[str]) -> str:
        grid, *words = call[2].split()
        if call[1] not in _CALLS:
            raise SpecError(f"a line of {about} calls one of {_CALLS}; got {call[1]!r}")
        if call[1] == "cost":
            return describe_cost([read(about.parent, each) for each in (grid, *words)])
        if call[1] == "main":
            picture = f"results/{about.parent.name}-{grid}-main.svg"
            pictures[picture] = _draw_main([read(about.parent, each) for each in (grid, *words)])
            return f"![Main effects of the axes of {', '.join((grid, *words))}]({picture})"
        result = read(about.parent, grid)
        if call[1] == "means":
            return _write_means(result, words)
        measure = _measure(result, words)
        if call[1] == "figure":
            picture = name_picture(about.parent.name, grid, *words)
            pictures[picture] = draw(result, measure)
            shown = "differences" if result.header["baseline"] else "values"
            return f"![{grid}: {shown}]({picture})"
        if call[1] == "runs":
            picture = name_picture(about.parent.name, grid, "runs")
            pictures[picture] = draw_picture(_title(result, measure), [Values(result.every_run(measure), measure)])
            return f"![{grid}: every run]({picture})"
        return _TABLES[call[1]](result, measure)

    return _CALL.sub(answer, about.read_text(encoding="utf-8")).rstrip("\n") + "\n"


def name_picture(*words: str) -> str:
    """Return the path below docs/ of the picture of a paper's grid."""
    name = "-".join(re.sub(r"\W+", "-", word) for word in words)
    return f"results/{name}.svg"


def _measure(result: GridResult, words: Sequence[str]) -> GridMeasure:
    """Return the measure of the grid, with coordinates of its point replaced."""
    measure = result.measure()
    point = dict(measure.point)
    for word in words:
        axis, _, value = word.partition("=")
        if axis not in point:
            raise SpecError(f"{measure.name!r} is measured at {list(point)}; got {word!r}")
        point[axis] = float(value)
    measure = measure._replace(point=point)
    if result.runs(measure)["value"].null_count() == result.header["trials"]:
        raise NotFoundError(f"{result.header['grid']} has no {measure.name!r} at {point}")
    return measure


def _verdicts(result: GridResult, measure: GridMeasure) -> pl.DataFrame:
    found = compare_runs(result.compared_runs(measure), measure)
    if _is_checked(result, measure):
        found = add_checks(found, result.checks)
    return found.sort("difference", descending=measure.better == "higher", nulls_last=True, maintain_order=True)


def _is_checked(result: GridResult, measure: GridMeasure) -> bool:
    """Whether the verdicts have checks, which are of the planned measure."""
    return bool(result.checks) and measure == result.measure()


def _write_verdicts(result: GridResult, measure: GridMeasure) -> str:
    found = _verdicts(result, measure)
    checked = _is_checked(result, measure)
    bases = baseline_rows(result.compared_runs(measure), measure)
    against = bases[0]["label"] if len(bases) == 1 else None
    tuned = "selected" in found.columns

    def name(row: Mapping[str, object]) -> tuple[str, ...]:
        return (str(row["label"]), str(row["selected"] or "")) if tuned else (str(row["label"]),)

    rows = [
        (*name(row), str(row["runs"]), say_number(row["value"]), "", "", "", *([""] if checked else []), "baseline")
        for row in bases
    ]
    for row in found.rows(named=True):
        interval = " to ".join(say_change(row[end], measure) for end in ("low", "high") if row[end] is not None)
        about = (say_change(row["difference"], measure), interval, format_p(row["p_holm"]) or "")
        marks = [f"`{mark_checks(row)}`"] if checked else []
        rows.append((*name(row), str(row["pairs"]), say_number(row["value"]), *about, *marks, row["verdict"]))
    level = f"{100 * (1 - measure.alpha):g} % interval"
    mean = "geometric mean" if measure.scale == "log" else "mean"
    names = ("cell", "best level") if tuned else ("cell",)
    heads = (*names, "pairs", mean, "difference", level, "p (Holm)", *(["checks"] if checked else []), "verdict")
    text = f"{_describe(result, measure, found, against)}\n\n{table(heads, rows)}\n{_sum_up(found, measure)}"
    claims = count_headlines(found) if checked else ""
    return f"{text}\n{LEGEND[0].upper()}{LEGEND[1:]}.{f' Here {claims}.' if claims else ''}\n" if checked else text


def _write_checks(result: GridResult, measure: GridMeasure) -> str:
    """Write the checks of every claim, with the number that each rests on."""
    claims = _verdicts(result, measure).filter(pl.col("verdict").is_in([*CLAIMS, "equivalent"]))
    rows = [
        (label, check.name, check.answer, check.reason)
        for cell, label in claims.select("cell", "label").rows()
        for check in result.checks[cell]
    ]
    return table(("cell", "check", "answer", "reason"), rows)


def _describe(result: GridResult, measure: GridMeasure, found: pl.DataFrame, against: str | None) -> str:
    band = f"{measure.rope:g}" if measure.scale == "linear" else f"{100 * measure.rope:g} %"
    return (
        f"{say_measure(result, measure)} Against {against or 'the baseline of the same other levels'}, "
        f"paired by seed; differences below {band} count as equal; "
        f"p by Holm over {format_count(found['family'][0], 'comparison')}."
    )


def _sum_up(found: pl.DataFrame, measure: GridMeasure) -> str:
    """Count the cells by verdict; of the undecided ones, say which differences their seeds would have shown."""
    counts = [f"{found.filter(verdict=word).height} {word}" for word in _WORDS if word in found["verdict"]]
    sizes = _range_found(found, measure)
    power = f" With 80 % power, the seeds of undecided cells find {sizes}." if sizes else ""
    return f"Cells: {'; '.join(counts)}.{power}\n"


def _contrasts(result: GridResult, measure: GridMeasure, *, every: bool = False) -> pl.DataFrame:
    """Compare the levels of each axis with its first, with seeds as the sample; without `every` if there are two.

    Columns are those of `seed_contrasts` and those that `Forest` draws.
    """
    values = result.runs(measure)
    levels = levels_of(result.header, values["axes"].to_list())
    axes = {axis["name"]: axis["labels"] for axis in result.header["axes"]}
    order = {name: labels for name, labels in axes.items() if len(labels) <= 2 or every}
    values = values.with_columns(pl.Series(name, levels[name], pl.String) for name in order)
    rules = {name: getattr(measure, name) for name in ("scale", "better", "rope", "alpha")}
    found = seed_contrasts(values, order, **rules).effects.filter(order=1).drop_nulls("effect")
    factor = pl.col("factor").str.replace_all("_", " ")
    return found.with_columns(factor, label=factor, difference="effect", pairs="n")


def _write_contrasts(result: GridResult, measure: GridMeasure) -> str:
    found = _contrasts(result, measure)
    rows = [
        (
            row["factor"],
            say_change(row["effect"], measure),
            f"{say_change(row['low'], measure)} to {say_change(row['high'], measure)}",
            format_p(row["p"]) or "",
            format_p(row["p_holm"]) or "",
            say_size(row["detectable"], measure),
        )
        for row in found.rows(named=True)
    ]
    level = f"{100 * (1 - measure.alpha):g} % interval"
    heads = ("component", "difference", level, "p", f"p (Holm over {found.height})", "found with 80 % power")
    return f"With a component less without it, n = {found['n'][0]} seeds.\n\n{table(heads, rows)}"


def _write_effects(result: GridResult, measure: GridMeasure) -> str:
    found = _contrasts(result, measure, every=True)
    rows = [
        (
            row["factor"],
            f"{row['level']} against {row['against']}",
            say_change(row["effect"], measure),
            f"{say_change(row['corrected_low'], measure)} to {say_change(row['corrected_high'], measure)}",
            format_p(row["p_holm"]) or "",
            row["verdict"],
            say_size(row["detectable"], measure),
        )
        for row in found.rows(named=True)
    ]
    heads = ("axis", "levels", "difference", "corrected interval", "p (Holm)", "verdict", "found with 80 % power")
    said = f"{say_measure(result, measure)} Averaged over the other axes; one value per seed, n = {found['n'][0]}"
    return f"{said}; p by Holm over {format_count(found.height, 'comparison')}.\n\n{table(heads, rows)}"


def _write_means(result: GridResult, probes: Sequence[str]) -> str:
    """Write the mean of the measure over seeds, and the mean and range over seeds of probes by layer and head."""
    measure = result.measure()
    values = result.runs(measure).group_by("cell", maintain_order=True).agg("label", "value")
    found_of = {probe: _values_of_probe(result, probe) for probe in probes}
    rows = []
    for cell, labels, found in values.rows():
        known = [value for value in found if value is not None]
        shown = [say_number(sum(known) / len(known)) if known else ""]
        for probe in probes:
            runs = found_of[probe].filter(cell=cell)["value"].to_list()
            shown.append(f"{say_number(sum(runs) / len(runs))} ({min(runs):.2g} to {max(runs):.2g})" if runs else "")
        rows.append((labels[0], str(len(known)), *shown))
    said = say_measure(result, measure)
    names = [probe.replace(":", ", ").replace("=", " ") for probe in probes]
    said += f" {' and '.join(names)}: mean over layers and heads, and the range over runs." if probes else ""
    return f"{said}\n\n{table(('cell', 'runs', f'mean {measure.name}', *names), rows)}"


def _values_of_probe(result: GridResult, probe: str) -> pl.DataFrame:
    """Return the mean over layers and heads by cell and seed of a probe such as `sink_share:position=2`."""
    name, _, coordinate = probe.partition(":")
    rows = result.rows.filter(source="probe", name=name)
    axis, _, value = coordinate.partition("=")
    texts: list[str | None] = []
    for text in rows["point"]:
        point = {name: at for name, at in json.loads(text).items() if name not in ("layer", "head")}
        texts.append(json.dumps(point) if not coordinate or point.get(axis) == float(value) else None)
    rows = rows.with_columns(at=pl.Series(texts, dtype=pl.String)).drop_nulls("at")
    if (several := rows["at"].n_unique()) != 1:
        rule = f"{result.header['grid']} has {several} points of {probe!r}"
        raise SpecError(f"{rule}; {'name one, as in sink_share:position=2' if several else 'leave it out'}")
    return rows.group_by("cell", "seed").agg(pl.col("value").mean())


def _write_numbers(result: GridResult, _: GridMeasure) -> str:
    numbers = result.rows.filter(source="probe").filter(pl.col("name").str.starts_with("number.")).group_by("name").agg(
        cells=pl.col("cell").n_unique(),
        low=pl.col("value").quantile(0.1, "linear"),
        median=pl.col("value").median(),
        high=pl.col("value").quantile(0.9, "linear"),
    )  # fmt: skip
    rows = [
        (f"`{name.removeprefix('number.')}`", str(cells), *(f"{value:+.2f}" for value in values))
        for name, cells, *values in numbers.sort("name").rows()
    ]
    return table(("number", "cells", "10th percentile", "median", "90th percentile"), rows)


def _draw_main(results: Sequence[GridResult]) -> str:
    """Draw the differences between the two levels of each axis that has two, a panel per grid."""
    panels: list[Panel] = []
    for result in results:
        measure = result.measure()
        panels += [Lines([_title(result, measure)]), Forest(_contrasts(result, measure), measure)]
    return draw_picture("With a component less without it", panels)


def _title(result: GridResult, measure: GridMeasure) -> str:
    return f"{result.header['grid']}: {name_measure(measure).replace('`', '')}"


def draw(result: GridResult, measure: GridMeasure) -> str:
    """Draw differences from the baseline; without one, values."""
    title = _title(result, measure)
    if result.header["baseline"] is None and not result.header.get("baselines"):
        return draw_picture(title, [Values(result.runs(measure), measure)])
    found = _verdicts(result, measure)
    if found.height > MOST_ROWS:
        title += f", levels of {found.height} cells averaged over the other axes"
        label = pl.format("{}: {} against {}", "factor", "level", "against")
        found = _contrasts(result, measure, every=True).with_columns(label=label)
    return draw_picture(title, [Forest(found, measure)])


_TABLES: Final[Mapping[str, Callable[[GridResult, GridMeasure], str]]] = {
    "verdicts": _write_verdicts,
    "checks": _write_checks,
    "controls": write_controls,
    "contrasts": _write_contrasts,
    "effects": _write_effects,
    "numbers": _write_numbers,
    "costs": write_costs,
}
_CALLS: Final = (*_TABLES, "cost", "figure", "main", "means", "runs")
