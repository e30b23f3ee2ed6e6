"""The notebooks in examples/ run from a fresh directory, and their figures show in an HTML export."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import write_quickstart

from ablate.store import Campaign

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place in which both notebooks ran, beside a campaign of the quick start; their pages are in its `examples`."""
    place = tmp_path_factory.mktemp("notebooks")
    write_quickstart(place / "campaigns" / "quickstart")
    shutil.copytree(EXAMPLES, place / "examples", ignore=shutil.ignore_patterns("*.html", ".ipynb_checkpoints"))
    own = {name: str(place / "jupyter") for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    notebooks = [f"examples/{path.name}" for path in sorted(EXAMPLES.glob("*.ipynb"))]
    options = ["--to", "html", "--execute", "--ExecutePreprocessor.startup_timeout=900"]  # 60 s by default
    command = [sys.executable, "-m", "nbconvert", *options, *notebooks]
    done = subprocess.run(command, cwd=place, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


def figures(page: str) -> int:
    """Count the figures that a page draws without another machine."""
    assert not re.search(r"<script[^>]*\ssrc=[^>]*plotly", page)
    assert page.count("plotly.js v") >= 1
    return len(re.findall(r"Plotly\.newPlot\(\s*[\"']", page))


@pytest.mark.slow
def test_a_campaign_is_explored(exported: Path) -> None:
    page = (exported / "examples" / "explore.html").read_text(encoding="utf-8")
    assert figures(page) == 3
    with Campaign(exported / "campaigns" / "quickstart") as campaign:
        assert f"the {len(campaign.trials())} trials" in page
        rows = campaign.compare().select("label", "verdict", "difference").rows()
    for label, verdict, difference in rows:
        number = f"{difference:.6f}".rstrip("0")
        assert re.search(rf"{label}.*?{verdict}.*?{number}", page, re.DOTALL)


@pytest.mark.slow
def test_a_training_loop_logs_runs_that_are_compared(exported: Path) -> None:
    assert figures((exported / "examples" / "training_loop.html").read_text(encoding="utf-8")) == 2
    with Campaign(exported / "campaigns" / "activations") as campaign:
        trials, verdicts = campaign.trials(), dict(campaign.compare().select("label", "verdict").rows())
    assert len(trials) == 15
    assert set(trials["state"]) == {"done"}
    assert verdicts["none"] == "worse"  # a line cannot follow a sine


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_short_and_has_no_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert len(cells) < 12
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
