"""`ablate check --machine`: a machine that lacks something is told so in a table, and the exit code says it too."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from ablate.runners.cli import check
from ablate.runners.cli.app import execute
from ablate.runners.cli.check import Check, examine


def test_a_torch_that_cannot_be_imported_is_a_failed_check_and_exit_code_5(tmp_path: Path) -> None:
    error = "OSError('libcudart: no such file\\nmore')"
    (tmp_path / "torch.py").write_text(f"raise {error}\n")
    command = [sys.executable, "-P", "-m", "ablate", "check", "--machine", "--campaign", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (printed.returncode, printed.stderr) == (5, "")
    (failed,) = [line for line in printed.stdout.splitlines() if line.startswith("!!") and "torch" in line]
    assert error.split("(")[0] in failed
    assert "campaign directory" in printed.stdout


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], list[Check]]:
    """The checks of an installation that declares these requirements and has torch 2.11 and no more."""

    def installed(name: str) -> str:
        if name != "torch":
            raise PackageNotFoundError(name)
        return "2.11.0+cu128"

    def examined(requirements: list[str]) -> list[Check]:
        monkeypatch.setattr(check, "requires", lambda _: requirements)
        monkeypatch.setattr(check, "version", installed)
        return [check for check in examine() if check.what in ("torch", "duckdb", "ablate")]

    return examined


@pytest.mark.parametrize(
    ("requirement", "check"),
    [
        ("torch<2.14,>=2.11", Check("torch", "2.11.0+cu128")),
        ("torch", Check("torch", "2.11.0+cu128")),
        ("torch>=2.12", Check("torch", "2.11.0+cu128, but ablate needs >=2.12; pip install 'torch>=2.12'", ok=False)),
        ("duckdb>=2", Check("duckdb", "missing; pip install 'duckdb>=2'", ok=False)),
    ],
)
def test_ranges_of_packages_hold(wanted: Callable[[list[str]], list[Check]], requirement: str, check: Check) -> None:
    others = ["duckdb; python_version < '3'", "duckdb; extra == 'more'"]  # other machines, extras
    assert wanted([requirement, *others]) == [check]


def test_without_packaging_it_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    assert Check("packaging", "missing; pip install packaging", ok=False) in examine()


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_cannot_be_a_campaign(tmp_path: Path, below: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("")
    assert execute(["check", "--machine", "--campaign", str(tmp_path / "taken" / below)]) == 5
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "campaign directory" in line]
    assert line.startswith("!!")
    assert f"{tmp_path / 'taken'} is a file; choose a directory with --campaign" in line


def test_this_installation_has_what_it_declares(tmp_path: Path) -> None:
    found = {check.what: check for check in examine(tmp_path / "new" / "er")}
    assert found.keys() >= {"Python", "torch", "duckdb", "pydantic", "polars", "scipy", "cyclopts"}
    assert all(check.ok for check in found.values() if check.needed)
    assert found["campaign directory"].found.startswith(f"{tmp_path}: writable")
