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

from store import Campaign

EXAMPLES = Path(__file__).parents[1] / "examples"


def export(name: str, place: Path) -> str:
    """Execute a copy of the notebook below `place`, and return its HTML page."""
    shutil.copytree(EXAMPLES, place / "examples", ignore=shutil.ignore_patterns("*.html", ".ipynb_checkpoints"))
    own = {name: str(place / "jupyter") for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute", f"examples/{name}.ipynb"]
    done = subprocess.run(command, cwd=place, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (place / "examples" / f"{name}.html").read_text(encoding="utf-8")


def figures(page: str) -> int:
    """Count the figures that a page draws without another machine."""
    assert not re.search(r"<script[^>]*\ssrc=[^>]*plotly", page)
    assert page.count("plotly.js v") >= 1
    return len(re.findall(r"Plotly\.newPlot\(\s*[\"']", page))


@pytest.mark.slow
def test_a_campaign_is_explored(tmp_path: Path) -> None:
    planted = write_quickstart(tmp_path / "campaigns" / "quickstart")
    page = export("explore", tmp_path)
    assert figures(page) == 3
    assert f"the {len(planted.lines)} trials" in page
    with Campaign(tmp_path / "campaigns" / "quickstart") as campaign:
        rows = campaign.compare().select("label", "verdict", "difference").rows()
    for label, verdict, difference in rows:
        number = f"{difference:.6f}".rstrip("0")
        assert re.search(rf"{label}.*?{verdict}.*?{number}", page, re.DOTALL)


@pytest.mark.slow
def test_a_training_loop_logs_runs_that_are_compared(tmp_path: Path) -> None:
    page = export("training_loop", tmp_path)
    assert figures(page) == 2
    with Campaign(tmp_path / "campaigns" / "activations") as campaign:
        trials, verdicts = campaign.trials(), dict(campaign.compare().select("label", "verdict").rows())
    assert len(trials) == 15
    assert set(trials["status"]) == {"ok"}
    assert verdicts["none"] == "worse"  # a line cannot follow a sine


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_short_and_has_no_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert len(cells) < 12
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
