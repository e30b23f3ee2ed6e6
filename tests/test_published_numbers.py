"""Every table of verdicts of docs/results.md, computed again from the runs with pandas and scipy alone."""

import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

ROOT = Path(__file__).parent.parent
TABLES = re.compile(r"^\{verdicts (\S+) ?(.*)\}$", re.MULTILINE)
CHANGES = {"difference", "low", "high"}
ADDED = (("controls", "cells"), ("longer", "added"))


class Printed(NamedTuple):
    """A row of a table of verdicts, and which runs it is of."""

    folder: Path
    grid: str
    point: str
    cells: dict[str, str]


def printed_rows() -> Iterator[Printed]:
    """Every row of every table of verdicts, but for baselines."""
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    sections = {text.partition("\n")[0]: text for text in re.split(r"^## ", page, flags=re.MULTILINE)}
    for about in sorted((ROOT / "results").glob("*/about.md")):
        text = about.read_text(encoding="utf-8")
        calls = TABLES.findall(text)
        section = sections[text.partition("\n")[0].removeprefix("## ")]
        tables = re.findall(r"(?:^\| cell \| (?:best level \| )?pairs .*\n)(?:^\|.*\n)+", section, re.MULTILINE)
        assert len(tables) == len(calls), about
        for (grid, point), table in zip(calls, tables, strict=True):
            head, _, *lines = table.splitlines()
            rows = [dict(zip(split(head), split(line), strict=True)) for line in lines]
            yield from (Printed(about.parent, grid, point, row) for row in rows if row["verdict"] != "baseline")


def split(line: str) -> list[str]:
    return [cell.strip() for cell in line.replace(r"\|", "/").strip("|").split("|")]


def choose(runs: pd.DataFrame, cell: str, header: dict[str, Any], tuned: list[str]) -> pd.Series:
    """The values of a cell by seed; of a tuned one, each at the level that is best on the other seeds."""
    if not tuned:
        return runs[runs["cell"] == cell].set_index("seed")["value"]
    added = {each for key, name in ADDED for each in (header.get(key) or {}).get(name, ())}
    axes = {each: json.loads(text) for each, text in zip(runs["cell"], runs["axes"], strict=True)}
    setting = {name: level for name, level in axes[cell].items() if name not in tuned}
    levels = [each for each, own in axes.items() if each not in added and setting.items() <= own.items()]
    values = runs[runs["cell"].isin(levels)].pivot_table(index="seed", columns="cell", values="value")
    sign = 1 if header["measure"]["better"] == "higher" else -1
    best = {seed: (sign * values.drop(seed).mean()).idxmax() for seed in values.index}
    return pd.Series({seed: values.loc[seed, level] for seed, level in best.items()})


def read_runs(folder: Path, grid: str, at: str) -> tuple[dict[str, Any], pd.DataFrame]:
    """The header of a grid and the values of its measure at a point, on the scale of the measure."""
    header = json.loads((folder / f"{grid}.json").read_text(encoding="utf-8"))["header"]
    measure = header["measure"]
    point = {**measure["point"], **{axis: float(level) for axis, level in (each.split("=") for each in at.split())}}
    runs = pd.read_parquet(folder / f"{grid}.parquet")
    runs = runs[(runs["name"] == measure["name"]) & (runs["source"] != "probe")]
    runs = runs[runs["point"].map(lambda text: all(json.loads(text).get(axis) == at for axis, at in point.items()))]
    runs["value"] = np.log(runs["value"]) if measure["scale"] == "log" else runs["value"]
    return header, runs


def compute(row: Printed, header: dict[str, Any], runs: pd.DataFrame) -> dict[str, float]:
    """The mean, difference, interval, and number of pairs of a cell from the runs, on the scale of the measure."""
    measure = header["measure"]
    label = {*row.cells["cell"].split(" · "), *filter(None, [row.cells.get("best level")])}
    cell = runs.loc[runs["label"].map(lambda text: {*text.split(" · ")} == label), "cell"].iloc[0]
    other = (header.get("baselines") or {}).get(cell, header["baseline"])
    tuned = [axis["name"] for axis in header["axes"] if axis.get("tune")]
    own, base = (choose(runs, each, header, tuned) for each in (cell, other))
    pairs = (own - base).dropna()
    found = {"pairs": len(pairs), "mean": own.mean(), "difference": pairs.mean()}
    if tuned:  # the interval contains the error of the choice, which no formula of scipy has
        return found
    spread = stats.sem(pairs) * stats.t.ppf(1 - measure["alpha"] / 2, len(pairs) - 1)
    interval = {"low": pairs.mean() - spread, "high": pairs.mean() + spread}
    return {**found, **interval, "p": stats.ttest_1samp(pairs, 0).pvalue}


def holm(p: list[float]) -> list[float]:
    order = np.argsort(p)
    steps = np.maximum.accumulate([(len(p) - rank) * p[at] for rank, at in enumerate(order)])
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(steps, 1)
    return list(adjusted)


def agrees(text: str, value: float) -> bool:
    """Whether a printed number is `value`, rounded to the digits that it shows."""
    if "<" in text:
        return value < float(text.rpartition("<")[2])
    number = text.removesuffix(" %").replace(",", "")
    last = 10.0 ** -len(number.partition(".")[2]) if "." in number else 10.0 ** (len(number) - len(number.rstrip("0")))
    return abs(float(number) - value) <= 0.501 * last


def test_numbers_of_tables_are_those_of_the_runs() -> None:
    wrong, printed = [], [*printed_rows()]
    assert printed
    for table, family in groupby(printed, key=lambda row: (row.folder, row.grid, row.point)):
        header, runs = read_runs(*table)
        rows = list(family)
        found = [compute(row, header, runs) for row in rows]
        if "p" in found[0]:
            for each, p in zip(found, holm([each["p"] for each in found]), strict=True):
                each["p"] = p
        wrong += [(row, each, names) for row, each in zip(rows, found, strict=True) if (names := differ(row, each))]
    assert not wrong


def differ(row: Printed, found: dict[str, float]) -> list[str]:
    """Names of the numbers of a row that are not those found; a row without an interval prints none."""
    text = {**row.cells, "p": row.cells["p (Holm)"]}
    text["low"], _, text["high"] = text["95 % interval"].partition(" to ")
    text["mean"] = text.get("mean") or text["geometric mean"]
    if text["difference"].endswith("%"):
        changes: dict[str, float] = {name: 100 * float(np.expm1(found[name])) for name in CHANGES & found.keys()}
        found = {**found, **changes, "mean": float(np.exp(found["mean"]))}
    return [name for name, value in found.items() if not agrees(text[name], value)]
