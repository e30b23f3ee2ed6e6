"""Machine and environment: what is missing is told by `check --machine`, and which differences forbid to train."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from ablate.runners.cli import check
from ablate.runners.cli.app import execute
from ablate.runners.cli.check import Finding, examine
from ablate.runners.provenance.environment import differences, record


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
def wanted(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], list[Finding]]:
    """The checks of an installation that declares these requirements and has torch 2.11 and no more."""

    def installed(name: str) -> str:
        if name != "torch":
            raise PackageNotFoundError(name)
        return "2.11.0+cu128"

    def examined(requirements: list[str]) -> list[Finding]:
        monkeypatch.setattr(check, "requires", lambda _: requirements)
        monkeypatch.setattr(check, "version", installed)
        return [check for check in examine() if check.what in ("torch", "duckdb", "ablate")]

    return examined


@pytest.mark.parametrize(
    ("requirement", "check"),
    [
        ("torch<2.14,>=2.11", Finding("torch", "2.11.0+cu128")),
        ("torch", Finding("torch", "2.11.0+cu128")),
        ("torch>=2.12", Finding("torch", "2.11.0+cu128, but ablate needs >=2.12; pip install 'torch>=2.12'", ok=False)),
        ("duckdb>=2", Finding("duckdb", "missing; pip install 'duckdb>=2'", ok=False)),
    ],
)
def test_ranges_of_packages_hold(
    wanted: Callable[[list[str]], list[Finding]], requirement: str, check: Finding
) -> None:
    others = ["duckdb; python_version < '3'", "duckdb; extra == 'more'"]  # other machines, extras
    assert wanted([requirement, *others]) == [check]


def test_without_packaging_it_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    assert Finding("packaging", "missing; pip install packaging", ok=False) in examine()


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
    assert found["campaign directory"].answer.startswith(f"{tmp_path}: writable")


def with_packages(recorded: dict[str, Any], **versions: str | None) -> dict[str, Any]:
    found = {**recorded["distributions"], **versions}
    return {**recorded, "distributions": {name: each for name, each in found.items() if each is not None}}


def test_the_record_has_every_installed_distribution_and_is_small() -> None:
    found = record()
    installed = reversed(list(importlib.metadata.distributions()))
    expected = {re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower(): each.version for each in installed}
    assert found["distributions"] == expected
    assert list(found["distributions"]) == sorted(expected)
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert len(json.dumps(found)) < 10_000
    assert json.loads(json.dumps(found)) == found
    assert differences(found, found) == ((), ())


def test_another_python_or_a_package_that_trials_import_forbids_to_train() -> None:
    here = record()
    (told,) = differences({**here, "python": "3.9.2"}, here).forbidding
    assert re.search(rf"Python .*{here['python']} here .*3\.9\.2", told)
    numpy, torch = differences(with_packages(here, torch="2.1.0", numpy=None), here).forbidding
    assert numpy.startswith(f"numpy is {here['distributions']['numpy']}")
    assert re.search(rf"torch is {re.escape(here['distributions']['torch'])} .*2\.1\.0", torch)
    assert len(differences(here, with_packages(here, torch=None)).forbidding) == 1
    assert "PyPy" in differences({**here, "implementation": "PyPy"}, here).forbidding[0]


def test_the_node_s_own_properties_are_only_told() -> None:
    here = {**record(), "python": "3.11.2", "gpus": ["NVIDIA A100, 550.54"], "cpu": "AMD EPYC", "threads": {}}
    node = {"python": "3.11.9", "gpus": [], "cpu": "Xeon", "threads": {"OMP_NUM_THREADS": "4"}, "glibc": "glibc 2.28"}
    found = differences(here, with_packages({**here, **node}, duckdb="0.1"))
    assert found.forbidding == ()
    told = ("3.11.9", "duckdb", "glibc 2.28", "Xeon", "OMP_NUM_THREADS=4", "NVIDIA A100")
    for remark, words in zip(found.remarks, told, strict=True):
        assert words in remark


def test_what_the_user_s_code_imports_must_not_differ_either() -> None:
    here = record(imports=("networkx", "json", "ablate", "not_there"))
    assert set(here["needed"]) - set(record()["needed"]) == {"networkx"}
    assert len(differences(with_packages(here, networkx="1.0"), here).forbidding) == 1
    assert len(differences(with_packages(record(), networkx="1.0"), record()).remarks) == 1


@pytest.mark.parametrize(
    ("answer", "gpus"),
    [("echo 'NVIDIA H200, 570.1'\necho 'NVIDIA H200, 570.1'", ["NVIDIA H200, 570.1"] * 2), ("exit 9", [])],
)
def test_gpus_are_as_told(answer: str, gpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert record()["gpus"] == gpus
