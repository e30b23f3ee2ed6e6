"""The environment as a record, and which of its differences forbid to train."""

import importlib.metadata
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ablate.runners.provenance.environment import differences, record


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
