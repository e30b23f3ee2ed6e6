"""A package of somebody else, as docs/plugins.md shows it, adds a command, a page, a backend and grids."""

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from hatchling.build import build_wheel

PAGE = Path(__file__).parent.parent / "docs" / "plugins.md"
FILE = re.compile(r"```(?:python|toml)\n# ([\w./]+)\n(.*?)```", re.DOTALL)
TORN = {
    "ablate.commands": {"absent": "torn.absent:run", "slowest": "torn.absent:run", "plan": "torn.absent:run"},
    "ablate.pages": {"absent": "torn.absent:PAGE", "number": "torn:NUMBER", "taken": "torn:TAKEN", "sql": "torn:TAKEN"},
    "ablate.backends": {"absent": "torn.absent:Backend", "number": "torn:NUMBER", "slurm": "torn:NUMBER"},
    "ablate.grids": {"absent": "torn.absent", "number": "torn:NUMBER", "faulty": "torn.faulty", "steps": "torn.faulty"},
}
"""Entry points of a package in which all is wrong: modules that are absent, objects of other kinds, names of others."""
TAKEN = """
from ablate.dashboards.app.address import Address
from ablate.dashboards.app.page import AppPage
NUMBER = 1
TAKEN = AppPage("taken", "Taken", "o", "Whose key opens Overview?", Address, lambda view: [], [])
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a wheel of the package of the page installs."""
    place = tmp_path_factory.mktemp("tiny")
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        (place / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "source" / name).write_text(text, encoding="utf-8")
    with chdir(place / "source"):
        wheel = place / build_wheel(str(place))
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place / "site")
    return place / "site"


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package in which all is wrong; its name comes after the one of the page."""
    place = tmp_path_factory.mktemp("torn")
    (place / "torn").mkdir()
    (place / "torn" / "__init__.py").write_text(TAKEN)
    (place / "torn" / "faulty.py").write_text("1 / 0\n")
    (place / "torn-1.dist-info").mkdir()
    (place / "torn-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torn\nVersion: 1\n")
    groups = (f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in of.items()) for group, of in TORN.items())
    (place / "torn-1.dist-info" / "entry_points.txt").write_text("\n".join(groups))
    return place


class Shell:
    """Calls `ablate` in a folder, with packages of others on the path."""

    def __init__(self, folder: Path, *sites: Path) -> None:
        self.folder = folder
        self.environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sites))}

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ablate", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.folder, env=self.environ, text=True, **pipes)

    def ablate(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Return what it writes to stdout and to stderr."""
        process = self.start(*words)
        out, err = process.communicate()
        assert process.returncode == code, err
        return out, err

    @contextmanager
    def dash(self, campaign: str) -> Iterator[tuple[str, list[str]]]:
        """Give the address of the dashboard while it runs; the list has what it wrote to stderr, in the end."""
        process, said = self.start("dash", campaign, "--port", "0"), list[str]()
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), said
        finally:
            process.send_signal(signal.SIGINT)
            said += process.communicate()[1].splitlines()


def status_of(url: str) -> int:
    try:
        with urlopen(url) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_a_plugin_adds_a_command_a_page_a_backend_and_grids(tiny: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path, tiny)
    plan = json.loads(shell.ablate("plan", "steps", "--json")[0])["data"]
    assert {grid["grid"]: grid["trials"] for grid in plan["grids"]} == {"width": 6, "bias": 6}
    assert "changed its process" not in shell.ablate("run", "steps:width", "--workers", "2")[1]  # by importing torch
    shell.ablate("run", "steps", "--grid", "bias", "--on", "here")
    query = "SELECT grid, count(*) AS n FROM v_final WHERE name = 'distance' GROUP BY grid ORDER BY grid"
    rows = json.loads(shell.ablate("sql", query, "--campaign", "campaigns/steps", "--json")[0])["data"]
    assert [(row["grid"], row["n"]) for row in rows] == [("bias", 6), ("width", 6)]
    # the same again: nothing is left to train, and a trial is found by the file in the package
    assert "trained 0 trials" in shell.ablate("run", "steps:bias", "--on", "here")[1]
    shell.ablate("repro", "seed=1", "width=2.0", "--campaign", "campaigns/steps")

    listed = shell.ablate("--help")[0]
    assert re.search(r"^│? *slowest +Print the trial", listed, re.MULTILINE)
    key, label = shell.ablate("slowest", "campaigns/steps")[0].split(maxsplit=1)
    assert re.fullmatch("[0-9a-f]{32}", key)
    assert "=" in label
    with shell.dash("campaigns/steps") as (address, said):
        with urlopen(f"{address}files/steps/slowest/trials.csv?grid=bias") as answer:
            rows = [line.split(",") for line in answer.read().decode().splitlines()[1:]]
        assert sorted(row[:2] for row in rows) == [[f"bias={bias}", seed] for bias in ("0.0", "0.1") for seed in "012"]
        assert [float(row[2]) for row in rows] == sorted((float(row[2]) for row in rows), reverse=True)
        assert [status_of(f"{address}steps/{page}") for page in ("slowest", "published", "slow")] == [200, 200, 404]
    assert said == []


def test_a_faulty_plugin_costs_a_sentence_and_others_go_on(tiny: Path, torn: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path, torn, tiny)
    for name in ("absent", "number", "faulty"):
        code, words = (2, "division by zero") if name == "faulty" else (5, "package 'torn'")
        assert words in shell.ablate("plan", name, code=code)[1]
    for grids in (["steps:width"], ["steps", "--grid", "width"]):
        _, said = shell.ablate("run", *grids, "--on", "here")
        (line,) = [line for line in said.splitlines() if "'torn'" in line]
        assert "the grid 'steps'" in line
    for name in ("absent", "number"):
        assert "package 'torn'" in shell.ablate("run", "steps:width", "--on", name, code=5)[1]

    assert shell.ablate("status", "--campaign", "campaigns/steps")[1] == ""
    listed, said = shell.ablate("--help")
    assert [re.findall("the command '(.*?)'", line) for line in said.splitlines()] == [
        ["plan"],
        ["slowest"],
        ["absent"],
    ]
    assert all(f" {name} " in listed for name in ("plan", "slowest", "published"))
    assert "absent" in shell.ablate("absent", code=5)[1]
    (line,) = shell.ablate("slowest", "campaigns/steps")[1].splitlines()
    assert "the command 'slowest' of package 'torn'" in line

    with shell.dash("campaigns/steps") as (address, told):
        codes = {page: status_of(f"{address}steps/{page}") for page in ("slowest", "sql", "absent", "number", "taken")}
    assert codes == {"slowest": 200, "sql": 200, "absent": 404, "number": 404, "taken": 404}
    assert [re.findall("the page '(.*?)'", line) for line in told] == [["sql"], ["absent"], ["number"], ["taken"]]
