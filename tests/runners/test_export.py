"""The command `export`: every table in every format, and what is refused."""

import contextlib
import io
import re
from pathlib import Path

import polars as pl
import pytest
from synthetic import write_campaign

from ablate.runners.cli.app import execute
from ablate.store.files.layout import Layout
from ablate.store.files.saved_texts import QUERIES


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("campaign")
    sizes = {"factors": {"width": (8,)}, "seeds": range(3), "steps": 4, "sigma_f": (5,), "sigma_x": (1,)}
    write_campaign(root, operators=("softmax", "SSA"), **sizes)
    query = "select label, map {'a': count(*)} as n from grid_trial group by all order by all"
    QUERIES.save(Layout(root), "per-cell", query)
    return root


def export(campaign: Path, *arguments: str) -> int:
    return execute(["export", *arguments, "--campaign", str(campaign)])


def test_trials_have_the_measure_and_rows_the_order_of_the_plan(campaign: Path, tmp_path: Path) -> None:
    for table in ("trials", "cells"):
        assert export(campaign, table, "--to", str(tmp_path / f"{table}.parquet")) == 0
    trials, cells = (pl.read_parquet(tmp_path / f"{table}.parquet") for table in ("trials", "cells"))
    assert cells["label"].unique(maintain_order=True).to_list() == ["softmax · 8", "SSA · 8"]
    means = trials.group_by("label").agg(pl.col("value").mean())
    measured = cells.filter((pl.col("name") == "mse") & (pl.col("sigma_f") == 5)).select("label", "mean")
    assert means.join(measured, on="label").select((pl.col("value") - pl.col("mean")).abs().max()).item() < 1e-12


@pytest.mark.parametrize(
    ("table", "rows", "column"),
    [
        ("verdicts", 1, "p_holm"),
        ("cells", 2 * 4, "sigma_f"),
        ("trials", 6, "width"),
        ("metrics", 6 * 4 * 3, "wall_s"),
        ("evaluations", 6 * 2, "sigma_x"),
        ("probes", 3 * 2 * 4, "head"),
        ("items", 6 * 2, "item"),
        ("per-cell", 2, "n"),
    ],
)
def test_every_table_is_whole_in_csv_and_parquet(
    table: str, rows: int, column: str, campaign: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "new" / f"{table}.csv"
    assert export(campaign, table, "--to", str(file)) == 0
    assert capfdbinary.readouterr().out.strip() == str(file).encode()
    assert export(campaign, table, "--to", "-", "--format", "parquet") == 0
    for found in (pl.read_csv(file), pl.read_parquet(io.BytesIO(capfdbinary.readouterr().out))):
        assert found.height == rows
        assert column in found.columns
        assert "point" not in found.columns


def test_tables_go_on_pages(campaign: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for table, suffix in (("verdicts", "tex"), ("metrics", "md"), ("per-cell", "tex")):
        assert export(campaign, table, "--to", str(tmp_path / f"{table}.{suffix}")) == 0
    page = (tmp_path / "verdicts.tex").read_text()
    assert re.search(r"SSA \$\\cdot\$ 8 & 3 & 0\.0\d{4} & \$-\$\d\d\.\d & \$-\$\d\d\.\d to \$-\$\d\d\.\d & ", page)
    assert re.search(r"softmax \$\\cdot\$ 8 & 3 & 0\.0\d{4} & -- & -- & -- & baseline", page)
    capfdbinary.readouterr()
    assert export(campaign, "cells", "--to", "-", "--format", "md", "--spread", "sd") == 0
    assert b"standard deviation" in capfdbinary.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("verdict --to x.csv", 3, "did you mean 'verdicts'"),
        ("../grids --to x.csv", 3, "no table '../grids'"),
        ("cells --to -", 2, "add --format"),
        ("trials --to x.csv --at sigma_f=5", 2, "are for cells on a page"),
        ("cells --to x.md --at sigma_f", 2, "such as sigma_x=1; got 'sigma_f'"),
        ("cells --to= --format csv", 2, "--to takes the name of a file, or - for stdout; got ''"),
    ],
)
def test_wrong_use_is_one_sentence_and_writes_nothing(
    arguments: str, code: int, words: str, campaign: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.chdir(tmp_path):
        assert export(campaign, *arguments.split()) == code
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert words in said.err
    assert list(tmp_path.iterdir()) == []
