"""Tables and figures in a notebook: what a cell's last line shows, and that it is what the report shows."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.io
import polars as pl
import pytest
from synthetic import write_campaign, write_quickstart

from ablate import dashboards
from ablate.dashboards import error_by, error_map, learned_numbers, training_curves
from ablate.grid.errors import NotFoundError
from ablate.store import Campaign

FIGURES: list[Callable[..., go.Figure]] = [
    getattr(dashboards, name)
    for name in dashboards.__all__
    if name not in ("report", "write_report", "dashboard_figure")
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a campaign in campaigns/quickstart."""
    place = tmp_path_factory.mktemp("notebook")
    write_campaign(
        place / "campaigns" / "quickstart",
        operators=("softmax", "SSA", "<b>x"),
        seeds=range(3),
        failed={("SSA", 1): "error"},
        steps=6,
        sigma_f=(1, 5, 9),
        sigma_x=(1, 2),
    )
    return place


@pytest.fixture(scope="module")
def campaign(root: Path) -> Iterator[Campaign]:
    """It, open."""
    with Campaign(root / "campaigns" / "quickstart") as found:
        yield found


def texts(figure: go.Figure) -> str:
    return str(figure.to_json())


@pytest.mark.parametrize("make", FIGURES, ids=lambda make: make.__name__)
def test_every_figure_of_the_report_is_one_line(campaign: Campaign, make: Callable[..., go.Figure]) -> None:
    figure = make(campaign)
    assert isinstance(figure, go.Figure)
    assert figure.layout.title.text
    assert len(figure.data) > 0
    legend = [trace.name for trace in figure.data if trace.name and trace.showlegend is not False]
    assert bool(figure.layout.showlegend) == bool(legend)
    assert "<b>x" not in texts(figure).replace("\\u003c", "<")  # labels are shown as they are, and are no markup
    with pytest.raises(NotFoundError, match="did you mean 'quickstart'"):
        make(campaign, grid="quickstar")


def test_lines_are_the_values_of_the_campaign(campaign: Campaign) -> None:
    figure = training_curves(campaign)
    lines = {trace.name: trace for trace in figure.data if trace.name}
    curves = campaign.curves("loss").join(campaign.trials().select("trial", "state"), on="trial")
    kept = curves.filter((pl.col("label") == "SSA") & (pl.col("state") == "done"))
    means = kept.group_by("step").agg(pl.col("mean").log().mean().exp()).sort("step")
    assert list(lines["SSA"].y) == pytest.approx(means["mean"].to_list())
    by = error_by(campaign, "sigma_f")
    points = campaign.evaluations(where={"sigma_x": 1}).filter(pl.col("label") == "softmax")
    expected = points.group_by("sigma_f").agg(pl.col("value").log().mean().exp()).sort("sigma_f")
    softmax = next(trace for trace in by.data if trace.name == "softmax")
    assert list(softmax.y) == pytest.approx(expected["value"].to_list())


def test_what_is_asked_for_is_found_or_told(campaign: Campaign) -> None:
    asked: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: error_by(campaign, "sigma_g"), NotFoundError, "varying coordinate 'sigma_g'.*did you mean 'sigma_"),
        (lambda: error_map(campaign, "SAS"), NotFoundError, "no variant 'SAS'.*did you mean 'SSA'"),
        (lambda: training_curves(campaign, "los"), NotFoundError, "no metric 'los'.*did you mean 'loss'"),
        (lambda: learned_numbers(campaign, "strenght"), NotFoundError, "did you mean 'strength'"),
    ]
    for ask, error, told in asked:
        with pytest.raises(error, match=told):
            ask()


def run_block(block: str, names: dict[str, Any]) -> list[Any]:
    """Run a block of Python; the values of its expressions, the last of which a notebook shows."""
    shown = []
    for each in ast.parse(block).body:
        if isinstance(each, ast.Expr):
            shown.append(eval(compile(ast.Expression(each.value), "python.md", "eval"), names))
        else:
            exec(compile(ast.Module([each], []), "python.md", "exec"), names)
    return shown


def test_the_snippets_of_the_page_run_and_show_tables_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_quickstart(tmp_path / "campaigns" / "quickstart")
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plotly.io.renderers, "default", "plotly_mimetype")  # the choice of a Jupyter kernel
    names: dict[str, Any] = {}
    found = [run_block(part.split("```", 1)[0], names) for part in page.split("```python\n")[1:]]
    shown = [each for block in found for each in block]
    frames = [each for each in shown if isinstance(each, pl.DataFrame)]
    figures = [each for each in shown if isinstance(each, go.Figure)]
    assert len(frames) == 8
    assert not any(frame.is_empty() for frame in frames)
    assert all("<table" in frame._repr_html_() for frame in frames)
    (verdict,) = frames[-1].rows(named=True)
    assert (verdict["label"], verdict["verdict"], verdict["pairs"]) == ("fast", "better", 5)
    assert [len(figure.data) > 0 for figure in figures] == [True, True]
    assert all("application/vnd.plotly.v1+json" in figure._repr_mimebundle_() for figure in figures)
    assert "<td>rates</td>" in names["campaign"]._repr_html_()
    names["campaign"].close()


def test_copied_python_draws_the_figure_of_the_page(campaign: Campaign) -> None:
    whole, hidden = (
        dashboards.dashboard_figure(campaign, f"curves/curves?by=operator{more}") for more in ("", "&hide=SSA")
    )
    lines = [trace.name for trace in whole.data if trace.visible and trace.name]
    assert set(lines) == {"softmax", "SSA", "&lt;b&gt;x"}
    assert "SSA" not in [trace.name for trace in hidden.data if trace.visible]
    for wrong, words in (("curves/nothing", "has no slot"), ("nowhere", "has no page"), ("runs/runs", "has no figure")):
        with pytest.raises(NotFoundError, match=words):
            dashboards.dashboard_figure(campaign, wrong)
