"""Runs of a grid with each setting at its best level of some axes, such as the learning rate, and their verdicts."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from ablate.grid.columns import BETWEEN
from ablate.grid.errors import SpecError
from ablate.grid.names import label_of
from ablate.grid.suggestions import suggest_name
from ablate.store.statistics import Baseline, Better, Scale
from ablate.store.statistics.selection import Selected, TunedChoice, select_then_report

_AXIS: Final = "axis: "  # keeps an axis that is called like a column of the runs apart from it


class ComparedRuns(NamedTuple):
    """The runs that verdicts compare, as `compare` takes them, and their baseline."""

    values: pl.DataFrame
    baseline: Baseline
    choices: Mapping[str, TunedChoice] = {}  # by the cell that stands for its setting; empty where nothing is tuned
    stands_for: Mapping[str, str] = {}  # the cell that stands for the setting of each cell


def nuisance_axes(header: Mapping[str, Any]) -> list[str]:
    """The names of the axes of a grid over which cells are tuned."""
    return [axis["name"] for axis in header["axes"] if axis.get("tune")]


def tune(
    values: pl.DataFrame, header: Mapping[str, Any], baseline: Baseline, *, scale: Scale, better: Better
) -> ComparedRuns:
    """Represent every setting of the axes that are no nuisance axes by its best level.

    On each seed this is the level that is best on the other seeds. The setting has the key of the cell that is best on
    all. Its label leaves the levels out, since no cell has its values. A setting without any value keeps a cell without
    values. Nothing changes where no setting has several cells.
    """
    names = [axis["name"] for axis in header["axes"]]
    tuned = nuisance_axes(header)
    if not tuned:
        return ComparedRuns(values, baseline)
    axes = [json.loads(text) for text in values["axes"]]
    columns = [pl.Series(_AXIS + name, [label_of(row.get(name)) for row in axes], pl.String) for name in names]
    ranks = {axis["name"]: {label: at for at, label in enumerate(axis["labels"])} for axis in header["axes"]}
    by_level = [pl.col(_AXIS + name).replace_strict(ranks[name], default=-1) for name in tuned]
    wide = values.with_columns(columns).sort(by_level, maintain_order=True)  # the middle one of equal levels is chosen
    within = [_AXIS + name for name in names if name not in tuned]
    settings = {row[0]: row[1:] for row in wide.select("cell", *within).unique().iter_rows()}
    if len(settings) == len({*settings.values()}):
        return ComparedRuns(values, baseline)
    chosen = select_then_report(wide, over=[_AXIS + name for name in tuned], within=within, scale=scale, better=better)
    order = {cell: at for at, cell in enumerate(values["cell"].unique(maintain_order=True))}
    in_order = chosen.values.sort(pl.col("cell").replace_strict(order), "seed", maintain_order=True)
    labels = _name_settings({cell: (choice.label, choice.levels) for cell, choice in chosen.choices.items()})
    return _represent(chosen._replace(values=in_order), settings, labels, baseline)


def _name_settings(chosen: Mapping[str, tuple[str, Mapping[str, object]]]) -> dict[str, str]:
    """The label of each chosen cell without its levels of the axes chosen over; in full if two became equal."""
    short = {}
    for cell, (label, levels) in chosen.items():
        text = f"{BETWEEN}{label}{BETWEEN}"
        for axis, level in levels.items():
            for part in (f"{axis.removeprefix(_AXIS)}={level}", str(level)):
                text = text.replace(f"{BETWEEN}{part}{BETWEEN}", BETWEEN, 1)
        short[cell] = text.strip(BETWEEN)
    whole = {cell: label for cell, (label, _) in chosen.items()}
    return short if all(short.values()) and len({*short.values()}) == len({*whole.values()}) else whole


def require_known(over: Sequence[str], header: Mapping[str, Any]) -> None:
    """Raise SpecError for an unknown axis, and if cells then differ from their baseline on no axis."""
    names, matched = [axis["name"] for axis in header["axes"]], header.get("matched") or []
    for name in over:
        if name not in names:
            raise SpecError(f"{name!r} is no axis to choose over; the grid has {names}{suggest_name(name, names)}")
    if matched and {*names} <= {*nuisance_axes(header), *over, *matched}:
        raise SpecError(
            f"{', '.join(over)} leave no axis on which a cell differs from its baseline, whose other levels are its "
            f"own; choose over {' or '.join(matched)}"
        )


def require_choice(over: Sequence[str], compared: ComparedRuns, header: Mapping[str, Any]) -> None:
    """Raise SpecError if there was nothing to choose, or one cell is left."""
    names = [axis["name"] for axis in header["axes"]]
    if not compared.choices:
        raise SpecError(
            f"over {', '.join(over)} there is nothing to choose: each setting of the other axes is one cell, as where "
            f"axes are zipped; name the zipped axes too, of {names}"
        )
    if len(compared.choices) < 2:
        raise SpecError(
            f"over {', '.join(over)} one cell is left, of the axes {names}; choose over fewer axes to compare"
        )


def _represent(
    chosen: Selected, settings: Mapping[str, tuple[str, ...]], labels: Mapping[str, str], baseline: Baseline
) -> ComparedRuns:
    """The runs to report, without those of a cell that nothing chose, with the baseline of each setting."""
    cells = {settings[cell]: cell for cell in chosen.choices}
    stands_for = {cell: cells[setting] for cell, setting in settings.items()}
    if isinstance(baseline, str):
        base: Baseline = stands_for.get(baseline, baseline)
    else:  # lines of a plan may be lost
        base = {stands_for[of]: stands_for[to] for of, to in baseline.items() if {of, to} <= stands_for.keys()}
    unselected = [cell for cell, choice in chosen.choices.items() if not choice.among]
    value = pl.when(~pl.col("cell").is_in(unselected)).then(pl.col("value")).alias("value")
    label = pl.col("cell").replace_strict(labels, return_dtype=pl.String).alias("label")
    return ComparedRuns(chosen.values.with_columns(value, label), base, chosen.choices, stands_for)


def add_choices(judged: pl.DataFrame, choices: Mapping[str, TunedChoice]) -> pl.DataFrame:
    """Add to rows of `compare` how their levels were chosen.

    Further columns are selected (its levels of the axes tuned), among (number of cells it was chosen from) and
    otherwise (seeds for which the others choose another one). There is no verdict, and `among` is 0, if the setting or
    the baseline's has no value.
    """
    picks = [choices[cell] for cell in judged["cell"]]
    words, reasons = [], []
    for pick, cell, word, reason in zip(picks, judged["baseline"], judged["verdict"], judged["reason"], strict=True):
        base = choices[cell]
        selected = pick.among and base.among
        words.append(word if selected else "no verdict")
        reason = reason.replace(" for these two cells", " for one level of both")
        doubts = [_of_selecting(pick, ""), _of_selecting(base, " in the baseline"), reason if selected else ""]
        reasons.append("; ".join(filter(None, [*doubts, "the levels of each seed were chosen on the other seeds"])))
    return judged.with_columns(
        pl.Series("verdict", words, pl.String),
        pl.Series("reason", reasons, pl.String),
        pl.Series("selected", [*map(selected_levels, picks)], pl.String),
        pl.Series("among", [pick.among for pick in picks], pl.Int64),
        pl.Series("otherwise", [pick.otherwise for pick in picks], pl.Int64),
    )


def selected_levels(choice: TunedChoice) -> str | None:
    """The levels that all seeds choose, such as rate=0.002; None if nothing was chosen."""
    levels = [f"{name.removeprefix(_AXIS)}={level}" for name, level in choice.levels.items()]
    return ", ".join(levels) if choice.among else None


def _of_selecting(choice: TunedChoice, where: str) -> str:
    planned = f"{choice.runs} runs that choose{where}"
    unusable = [f"{choice.unusable} of {planned} ended without a finite value"] if choice.unusable else []
    if not choice.among:
        left = [f"{choice.outstanding} of them outstanding"] if choice.outstanding else []
        return "; ".join([f"nothing was chosen: none of the {planned} has a value", *left, *unusable])
    ended = choice.runs - choice.outstanding
    left = [f"preliminary: {ended} of {planned}"] if choice.outstanding else []
    return "; ".join([*left, *unusable])
