"""The table of cells: what is bold, what is missing, and what the caption says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from scipy import stats
from store_export_reader import rows
from synthetic import write_campaign, write_grid

from ablate.grid import Experiment, Grid, over
from ablate.grid.errors import NotFoundError, SpecError
from ablate.store.export import tables
from ablate.store.export.cells import (
    CellTable,
    ExportColumn,
    ExportEntry,
    cells,
    latex_cells,
    markdown_cells,
    within_noise,
)
from ablate.store.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Clear differences, one cell that failed, one that has not finished, one of which a seed failed."""
    root: Path = tmp_path_factory.mktemp("campaign")
    write_campaign(
        root,
        operators=("softmax", "Integral", "SSA", "Bad_{x}", "Late", "Half"),
        seeds=range(4),
        noise=0.01,
        steps=4,
        sigma_f=(1, 5),
        sigma_x=(1,),
        effect=lambda axes: {"softmax": 0.0, "Integral": -1.0, "SSA": -1.005}.get(str(axes["operator"]), -2.0),
        failed={**{("Bad_{x}", seed): "diverged" for seed in range(4)}, ("Half", 2): "error"},
        pending=[("Late", seed) for seed in range(4)],
    )
    with Store.open(root) as found:
        yield found


def test_only_what_is_not_shown_worse_is_bold(store: Store) -> None:
    table = cells(store, "quickstart", (), {}, "interval")
    (column,) = table.columns
    bold = {label for label, entry in zip(table.labels, column.entries, strict=True) if entry.best}
    assert bold == {"Integral", "SSA"}  # Half is lower, and one of its seeds failed
    missing = {label: entry.missing for label, entry in zip(table.labels, column.entries, strict=True) if entry.missing}
    assert missing == {"Bad_{x}": "failed", "Late": "outstanding"}


def test_the_plus_minus_is_the_interval_or_the_deviation(store: Store) -> None:
    values = store.final("quickstart", "mse", {"sigma_f": 5, "sigma_x": 1})
    ours = np.array(values.filter(values["label"] == "SSA")["value"].to_list())
    for spread in ("interval", "sd"):
        table = cells(store, "quickstart", (), {}, spread)
        entry = table.columns[0].entries[table.labels.index("SSA")]
        assert entry.mean == pytest.approx(ours.mean())
        low, _ = stats.t.interval(0.95, 3, ours.mean(), stats.sem(ours))
        assert entry.spread == pytest.approx(ours.mean() - low if spread == "interval" else ours.std(ddof=1))


def test_latex_has_a_row_per_cell_and_a_column_per_point(store: Store) -> None:
    text = latex_cells(cells(store, "quickstart", ("mse", "loss"), {}, "interval"))
    found = rows(text)
    assert [row[0] for row in found] == ["cell", "softmax", "Integral", "SSA", r"Bad\_\{x\}", "Late", "Half"]
    assert r"\textbf{" in " ".join(found[2])
    assert r"\textbf{" not in " ".join(found[1] + found[6])
    assert r"$\times$" in found[4][1]
    assert r"\ldots{}" in found[5][1]
    assert "$^{3/4}$" in found[6][1]
    for words in (
        "half the 95 \\% t interval",
        "4 planned seeds",
        "Bold: not shown to be worse",
        "failed",
        "not finished",
    ):
        assert words in text
    assert "↓" not in text
    assert r"$\downarrow$" in found[0][1]


def test_a_power_of_ten_is_of_the_mean_and_of_its_interval() -> None:
    entry = ExportEntry(9.7e-5, 1.6e-5, 3, 3, None, best=False)
    table = CellTable("grid", ["a"], [ExportColumn("mse", {}, None, "linear", [entry])], "interval", 0.05)
    assert r"a & (9.7 $\pm$ 1.6)$\,\cdot\,10^{-5}$" in latex_cells(table)
    assert r"\caption{Of my own.}" in latex_cells(table, "Of my own.")


def test_markdown_says_the_same(store: Store) -> None:
    text = markdown_cells(cells(store, "quickstart", (), {}, "sd"))
    table, caption = text.split("\n\n")
    assert [line.count("**") for line in table.splitlines()] == [0, 0, 0, 2, 2, 0, 0, 0]
    assert "± is the standard deviation" in caption


def test_what_is_not_there_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError, match=r"has 'mes'; they have .*did you mean 'mse'"):
        cells(store, "quickstart", ("mes",), {}, "interval")
    with pytest.raises(NotFoundError, match=r"'mse' has no point with \{'sigma_f': 3.0\}; it has 2"):
        cells(store, "quickstart", ("mse",), {"sigma_f": 3.0}, "interval")
    monkeypatch.setattr("ablate.store.export.cells.MOST_COLUMNS", 5)
    with pytest.raises(SpecError, match=r"6 columns .* at most 5"):
        cells(store, "quickstart", ("mse", "mse:lower", "mse:higher"), {}, "interval")
    with pytest.raises(SpecError, match="mse came several times"):
        cells(store, "quickstart", ("mse", "loss", "mse"), {}, "interval")


def test_noise_alone_makes_nothing_bold_in_95_of_100_tables() -> None:
    generator, tables = np.random.default_rng(0), 300
    for k, n in ((3, 3), (6, 5)):
        values = np.exp(0.1 * generator.standard_normal((tables, k, n)))
        told = [within_noise([dict(enumerate(cell)) for cell in one], "log", "lower", 0.05) for one in values]
        false = sum(bool(found) for found in told)
        assert false <= stats.binom.ppf(0.999, tables, 0.05)


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([{0: 1.0, 1: 1.1, 2: 0.9}, {0: 2.0, 1: 2.1, 2: 1.91}], {0}),
        ([{0: 1.0, 1: 1.1, 2: 0.9}, {0: 1.05, 1: 1.0, 2: 0.97}], set()),  # nothing is told
        ([{0: 1.0, 1: 1.1, 2: 0.9}] * 2 + [{0: 2.0, 1: 2.1, 2: 1.91}], {0, 1}),  # equal on every seed
        ([{0: 1.0, 1: 1.1}, {0: 9.0, 1: 9.1, 2: 9.2}], set()),  # too few to judge
        ([{}, {}], set()),
        # no seed in common with the best: nothing is shown of the second, and the third is worse
        ([{0: 1.0, 1: 1.1, 2: 0.9}, {3: 2.0, 4: 2.1, 5: 1.91}, {0: 9.0, 1: 9.1, 2: 8.91}], {0, 1}),
        ([{0: 1.0, 1: 1.1, 2: 0.9}, {1: 2.0, 2: 2.1, 5: 1.91}], set()),  # two in common
    ],
)
def test_who_is_within_noise_of_the_best(runs: list[dict[int, float]], found: set[int]) -> None:
    assert within_noise(runs, "linear", "lower", 0.05) == found
    mirrored = [{seed: -value for seed, value in of.items()} for of in runs]
    assert within_noise(mirrored, "linear", "higher", 0.05) == found


class Rig(Experiment):
    """A trial of numbers only."""

    kind: Literal["tests_cells_rig"] = "tests_cells_rig"
    rate: float = 0.1
    width: int = 32


def test_cells_and_trials_have_the_baseline_first_and_then_the_order_of_the_spec(tmp_path: Path) -> None:
    axes = [over("rate", [0.3, 0.1, 0.2]), over("width", [64, 16, 32])]
    write_grid(tmp_path, Grid("rig", Rig(), axes, seeds=range(3), baseline={"rate": 0.1, "width": 16}))
    cell_labels = ["0.1 · 16", *(f"{a} · {b}" for a in (0.3, 0.1, 0.2) for b in (64, 16, 32) if (a, b) != (0.1, 16))]
    with Store.open(tmp_path) as store:
        found = cells(store, "rig", (), {}, "interval").labels
        trials = tables.rows(store, "rig", "trials")
    assert [label.replace("rate=", "").replace("width=", "") for label in found] == cell_labels
    assert trials["label"].unique(maintain_order=True).to_list() == found
    assert trials["seed"].to_list() == [0, 1, 2] * 9
