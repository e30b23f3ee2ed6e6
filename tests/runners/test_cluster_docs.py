"""The pages about clusters agree with the code: commands, options, fields, defaults and messages."""

import re
from pathlib import Path

import pytest
from cyclopts import App

from ablate.runners.backends.slurm.spec import Slurm, cluster_of
from ablate.runners.backends.slurm.submit.job_arrays import MOST_DEATHS, MOST_REFUSALS
from ablate.runners.cli.app import app
from ablate.runners.cli.commands import register_commands
from ablate.runners.provenance.specfile import load_spec_file

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    page.stem: page.read_text()
    for page in (DOCS / f"{name}.md" for name in ("cluster", "administrators", "monitoring", "tutorial", "specs"))
} | {"README": (DOCS.parent / "README.md").read_text()}
OPTIONS = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
CALL = re.compile(r"(?:`|^ {4}(?:\$ |srun .*)?)ablate ([a-z]+)([^`\n#|]*)", re.MULTILINE)
ELSEWHERE = set(
    OPTIONS.findall("--array --cpus-per-task --gres --name --open-mode --requeue --signal --test-only --version")
) | {"--group", "--nv", "--bind", "--containall", "--cleanenv", "--pid", "--no-capture-output"}
"""Options of sbatch, srun, scancel, python, apptainer and conda."""


def options(command: str) -> set[str]:
    """The options of a command, with the short ones."""
    register_commands(app, command)
    found: App = app[command]
    return {
        name for each in found.assemble_argument_collection() for name in each.parameter.name or () if name[0] == "-"
    }


def calls(text: str) -> list[tuple[str, str]]:
    """Every `ablate COMMAND ...` of a page: the command, and what follows it."""
    return CALL.findall(text)


def spec_of(page: str) -> str:
    """The Python file in a page."""
    return re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]  # type: ignore[index]


@pytest.mark.parametrize("name", PAGES)
def test_every_call_in_a_page_is_one_that_the_command_takes(name: str) -> None:
    found = calls(PAGES[name])
    assert len(found) >= 5
    for command, words in found:
        rest = re.sub(r" -\w+", "", words) if command == "tag" else words  # -bad removes a tag
        assert not set(OPTIONS.findall(rest)) - options(command), f"ablate {command}{rest}"


def test_every_option_in_a_page_is_one_of_ablate_or_of_a_program_named_here() -> None:
    every = {
        option
        for command in ("cancel", "check", "plan", "run", "retry", "logs", "status", "table")
        for option in options(command)
    } | ELSEWHERE
    for name in ("cluster", "administrators", "monitoring"):
        page = PAGES[name]
        assert not {each for each in OPTIONS.findall(page) if each.startswith("--")} - every, name


def test_every_field_of_slurm_and_every_option_of_a_submission_is_explained() -> None:
    table = "\n".join(line for line in PAGES["cluster"].splitlines() if line.startswith("|"))
    assert [field for field in Slurm.model_fields if f"`{field}`" not in table] == []
    general = {
        "--grid",
        "--scale",
        "--campaign",
        "--on",
        "--replace",
        "--retry",
        "--rerun-stale",
        "--again",
        "--help",
        "-h",
    }
    for option in options("run") - general:
        assert f"`{option}" in PAGES["cluster"], option


def test_the_spec_file_of_the_page_is_a_grid_and_what_is_asked_for_it(tmp_path: Path) -> None:
    path = tmp_path / "noise.py"
    path.write_text(spec_of(PAGES["cluster"]))
    (grid,) = load_spec_file(path).values()
    assert len(list(grid.trials())) == 6
    assert cluster_of(path) == Slurm(partition="debug", time="30m", workers=2)


def test_the_defaults_that_the_pages_say_are_those_of_the_code() -> None:
    slurm = Slurm()
    assert f"default `{slurm.time}`" in PAGES["cluster"]
    assert f"leave; default {slurm.signal_s} " in PAGES["cluster"]
    assert f"of a trial; default {slurm.heartbeat_s:g} " in PAGES["cluster"]
    assert f"USR2@{slurm.signal_s}" in PAGES["administrators"]
    assert f"every `heartbeat_s`, {slurm.heartbeat_s:g} s" in PAGES["administrators"]
    assert f"{1000 / slurm.heartbeat_s:.0f} a second: one per trial" in PAGES["administrators"]
    assert f"until it has died {MOST_DEATHS} times since its last 85" in PAGES["administrators"]
    assert MOST_REFUSALS == 3
    assert "three nodes at most" in PAGES["administrators"]
