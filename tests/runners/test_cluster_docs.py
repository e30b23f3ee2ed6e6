"""The pages about clusters and campaigns: what they name is there, and what is there is named."""

import ast
import re
from pathlib import Path

import pytest
from cyclopts import App

from runners.cli import app
from runners.provenance.specfile import cluster_of, load_spec_file
from runners.slurm.spec import Needs, Slurm
from runners.slurm.submitting.script import MOST_DEATHS, MOST_REFUSALS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    page.stem: page.read_text() for page in (DOCS / f"{name}.md" for name in ("cluster", "administrators", "tending"))
}
README = (DOCS.parent / "README.md").read_text()
OPTIONS = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
CALL = re.compile(r"(?:`|^ {4}(?:\$ |srun .*)?)ablate ([a-z]+)([^`\n#|]*)", re.MULTILINE)
ELSEWHERE = {
    *(
        "--array",
        "--cpus-per-task",
        "--gres",
        "--hold",
        "--name",
        "--open-mode",
        "--requeue",
        "--signal",
        "--test-only",
    ),
    *("--version", "--group"),
}
"""Of sbatch, srun, scancel and python."""


def options(command: str) -> set[str]:
    """The options of a command, with the short ones."""
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


@pytest.mark.parametrize("name", [*PAGES, "README"])
def test_every_call_in_a_page_is_one_that_the_command_takes(name: str) -> None:
    found = calls({**PAGES, "README": README}[name])
    assert len(found) >= 5
    for command, rest in found:
        assert not set(OPTIONS.findall(rest)) - options(command), f"ablate {command}{rest}"


def test_every_option_in_a_page_is_one_of_ablate_or_of_a_program_named_here() -> None:
    every = {option for command in ("run", "retry", "logs") for option in options(command)} | ELSEWHERE
    for name, page in PAGES.items():
        assert not {each for each in OPTIONS.findall(page) if each.startswith("--")} - every, name


def test_every_field_of_slurm_and_every_option_of_a_submission_is_explained() -> None:
    table = "\n".join(line for line in PAGES["cluster"].splitlines() if line.startswith("|"))
    assert [field for field in Slurm.model_fields if f"`{field}`" not in table] == []
    for option in options("run") - {"--grid", "--campaign", "--on", "--retry", "--again", "--help", "-h"}:
        assert f"`{option}" in PAGES["cluster"], option


def test_the_fields_that_the_page_sets_are_there() -> None:
    for name, kind in {"Slurm": Slurm, "Needs": Needs}.items():
        said = re.findall(rf"{name}\(([^\n]*)\)", PAGES["cluster"])
        named = {field for each in said for field in re.findall(r"(?<!\{)\b(\w+)=", each)}
        assert named, name
        assert named <= set(kind.model_fields), name


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


def said_by_the_code() -> str:
    """All strings in the sources of the runners, a line each; the gaps of a formatted one divide it."""
    trees = (ast.parse(path.read_text()) for path in (DOCS.parent / "runners").rglob("*.py"))
    found = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return "\n".join(each for each in found if isinstance(each, str))


def test_the_messages_that_the_page_explains_are_those_of_the_code() -> None:
    known = said_by_the_code()
    table = PAGES["cluster"].partition("## When something is wrong")[2]
    cells = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ") and "`" in line]
    messages = [message for cell in cells for message in re.findall(r"`([^`]{20,})`", cell)]
    assert len(messages) > 12
    for message in messages:
        words = message.split()
        runs = [" ".join(words[at : at + 3]) for at in range(len(words) - 2)]
        assert any(run in known for run in runs) or message.startswith("module: "), message


def test_every_page_that_is_linked_exists() -> None:
    for text, place in [(README, DOCS.parent), *((page, DOCS) for page in PAGES.values())]:
        for link in re.findall(r"\]\(([\w./-]+)\)", text):
            assert (place / link).exists(), link
