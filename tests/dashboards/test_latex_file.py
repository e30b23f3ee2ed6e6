"""Files of figures and tables carry the measure, its unit and its direction; LaTeX has real minus signs."""

import re
from pathlib import Path

import polars as pl
from flask import Flask
from synthetic import write_campaign

from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.downloads import download
from ablate.dashboards.app.engine import Engine
from ablate.dashboards.app.pages import app_pages
from ablate.dashboards.data.latex_file import latex_file

PAGES = app_pages()


def test_numbers_are_rounded_with_real_minus_signs_and_prose_is_left_out() -> None:
    rows = [("▲ better", -0.45539784, 3, "why"), ("= equivalent", -3.949e-5, 5, "why"), ("–", None, 1, "why")]
    frame = pl.DataFrame(rows, ["verdict", "difference", "pairs", "reason"], orient="row")
    text = latex_file(frame, "Loss (lower is better) at 5 %").decode()
    assert r"\caption{Loss (lower is better) at 5 \%}" in text
    assert r"better & $-$0.4554 & 3 \\" in text
    assert r"equivalent & $-$3.949 $\times 10^{-5}$ & 5 \\" in text
    assert r"-- & -- & 1 \\" in text
    assert "why" not in text


def test_files_have_the_measure_its_unit_and_its_direction(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    write_campaign(root, operators=("softmax", "SSA"), seeds=range(3), steps=6)
    engine = Engine(Campaigns([root]), PAGES)
    with Flask("files").app_context():
        for page, slot in (("overview", "differences"), ("compare", "verdicts"), ("factors", "effects")):
            rows = pl.read_csv(download(engine, "runs", page, slot, "csv", "").get_data())
            assert set(rows.select("measure", "unit", "better").rows()) == {
                ("mse@sigma_f=5,sigma_x=1", "squared output units", "lower")
            }
            assert "is better" in download(engine, "runs", page, slot, "tex", "").get_data(as_text=True)
        rows = pl.read_csv(download(engine, "runs", "curves", "curves", "csv", "?metric=loss").get_data())
        assert set(rows.select("metric", "unit", "better").rows()) == {("loss", None, "lower")}
        heads = (
            download(engine, "runs", "compare", "verdicts", "tex", "").get_data(as_text=True).partition("midrule")[0]
        )
        assert "p (Holm)" in heads
        assert not {"low", "high", "change", "corrected"} & set(re.findall("[a-z]+", heads.partition("toprule")[2]))
