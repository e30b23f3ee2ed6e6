"""The pages for newcomers: every file in them loads, and `ablate plan` says of it what the page says.

`python tests/runners/test_guide.py` writes the plans of docs/specs.md anew.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = DOCS / "specs.md"
FILE = re.compile(r"```python\n# (\w+\.py)\n.*?```", re.DOTALL)
SHOWN = re.compile(r"```text\n\$ ablate (plan [^\n]*)\n(.*?)```", re.DOTALL)
LAYOUT = re.compile(r"^campaign /", re.MULTILINE)


def save_files(page: str, folder: Path) -> list[str]:
    """Save the files of a page, and return their names."""
    for found in FILE.finditer(page):
        text = found[0].removeprefix("```python\n").removesuffix("```")
        (folder / found[1]).write_text(text, encoding="utf-8")
    return FILE.findall(page)


def said_of_the_grids(output: str) -> str:
    """Leave out what a plan says of the campaign."""
    return LAYOUT.split(output)[0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_file_of_the_guide_has_the_plan_that_it_shows(folder: Path, ablate: Callable) -> None:
    page = GUIDE.read_text(encoding="utf-8")
    names = save_files(page, folder)
    assert len(re.findall("```python", page)) == len(names) == len(set(names)) > 12
    planned = {command.split()[1] for command, _ in SHOWN.findall(page)}
    assert planned == set(names) - {"common.py"}
    for command, shown in SHOWN.findall(page):
        found = ablate(*command.split(), code=2 if shown.startswith("ablate: ") else 0)
        assert shown == (said_of_the_grids(found.out) or found.err.splitlines()[-1] + "\n"), command


def write_plans() -> None:
    """Write the plans into the guide, each by a process of its own."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        page = GUIDE.read_text(encoding="utf-8")
        save_files(page, Path(folder))
        environment = {**os.environ, "PYTHONPATH": str(DOCS.parent / "src")}

        def plan(found: re.Match[str]) -> str:
            command = [sys.executable, "-m", "ablate", *found[1].split()]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            output = said_of_the_grids(done.stdout) or done.stderr.splitlines()[-1] + "\n"
            return f"```text\n$ ablate {found[1]}\n{output}```"

        GUIDE.write_text(SHOWN.sub(plan, page), encoding="utf-8")


def test_the_tutorial_s_grid_and_its_change_are_grids(folder: Path, ablate: Callable) -> None:
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    first, change = re.findall(r"```(?:python|diff)\n(.*?)```", page, re.DOTALL)
    (folder / "first.py").write_text(first, encoding="utf-8")
    assert "grid first: 6 cells, 24 trials\n" in ablate("plan", "first.py").out
    before, after = ("".join(re.findall(rf"^[{mark} ](.*\n)", change, re.MULTILINE)) for mark in "-+")
    assert before in first
    (folder / "first.py").write_text(first.replace(before, after), encoding="utf-8")
    assert "grid first: 12 cells, 48 trials\n" in ablate("plan", "first.py").out


def test_the_page_on_own_training_code_goes_from_a_file_to_a_verdict(folder: Path, ablate: Callable) -> None:
    page = (DOCS / "own-code.md").read_text(encoding="utf-8")
    (folder / "own.py").write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], encoding="utf-8")
    assert "45 trials" in ablate("plan", "own.py", "--calibrate").out
    ablate("run", "own.py", "--workers", "2")
    rows = json.loads(ablate("table", "--json").out)["data"]
    verdicts = {row["label"].partition(" · ")[0]: row["verdict"] for row in rows if row["verdict"] is not None}
    assert verdicts["none"] == "worse"  # a line cannot follow a sine


def test_the_page_on_own_training_code_runs_a_program(folder: Path, ablate: Callable) -> None:
    page = (DOCS / "own-code.md").read_text(encoding="utf-8").partition("## A program\n")[2]
    (folder / "program.py").write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], encoding="utf-8")
    ablate("run", "program.py", "--workers", "2")
    (row,) = [row for row in json.loads(ablate("table", "--json").out)["data"] if row["verdict"] is not None]
    assert row["verdict"] == "better"  # a larger rate lowers this loss faster


if __name__ == "__main__":
    write_plans()
