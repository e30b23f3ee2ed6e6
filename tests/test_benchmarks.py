"""Benchmarks for a GPU machine run with the packages of training alone."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RUN = """
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dash", "duckdb", "plotly", "polars", "scipy", "submitit"):
            raise ImportError(f"{name} is not on a bare machine")

sys.meta_path.insert(0, Missing())
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/benchmarks"]
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*words: str, before: str = "") -> list[dict]:
    command = [
        sys.executable,
        "-P",
        "-c",
        RUN.replace("runpy.run_path", f"{before}\nrunpy.run_path"),
        str(ROOT),
        str(ROOT / "benchmarks" / words[0]),
        *words[1:],
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_attention_is_measured_on_every_path(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    about, *rows = run(
        "attention.py", "--lengths", "40", "--rounds", "1", "--operators", "principled", "--write", str(file)
    )  # fmt: skip
    assert {(row["operator"], row["path"]) for row in rows} == {
        ("fused attention", ""), ("principled", "cpu"), ("principled", "reference"),
    }  # fmt: skip
    assert json.loads(file.read_text()) == {**about, "rows": rows}


def test_training_is_measured_beside_a_loop_by_hand() -> None:
    _, good, bad = run("training.py", "--steps", "10", "--path", "sdpa", "--operators", "softmax", "ssa")
    assert good["ratio"] > 0
    assert good["tokens_per_s"] > 0
    assert "sdpa computes score 'exponential' only" in bad["error"]


def test_an_operator_that_breaks_loses_no_other() -> None:
    """An error of a compiler is no RuntimeError; on a GPU it comes first when a kernel is run."""
    breaks = "from variants.paths import cpu\n"
    breaks += "def run(*_):\n    raise Exception('no kernel')\ncpu.run.__code__ = run.__code__\n"
    _, *rows = run(
        "attention.py", "--lengths", "40", "--rounds", "1", "--operators", "ssa", "softmax", before=breaks
    )  # fmt: skip
    broken = {(row["operator"], row["path"], row["error"]) for row in rows if "error" in row}
    assert broken == {(name, "cpu", "Exception: no kernel") for name in ("ssa", "softmax")}
    assert {row["operator"] for row in rows if "error" not in row} == {"fused attention", "softmax", "ssa"}
    _, *rows = run("training.py", "--path", "cpu", "--operators", "ssa", "softmax", before=breaks)
    assert [row["error"] for row in rows] == ["Exception: no kernel"] * 2


def test_the_page_takes_files_of_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition of long sequences and broken operators have no row; a file may have errors alone."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    page = importlib.import_module("performance_page")
    files = {path.stem: json.loads(path.read_text()) for path in page.RESULTS.glob("*.json")}
    attention, training = files["attention-cpu"], files["training-cpu"]
    for each in (attention, training):
        each |= {"gpu": "NVIDIA H200", "commit": None}
    attention["rows"] = [{**row, "chosen": row["chosen"] and row["operator"] != "ssa"} for row in attention["rows"]]
    training["rows"] = [{"size": "125m", "operator": "ssa", "path": "triton", "error": "OutOfResources: shared memory"}]
    for name, each in {"attention-h200": attention, "training-h200": training}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(each))
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    text = page.make_performance_page()["performance.md"]
    assert "No accelerator was measured" not in text
    assert "commit unknown" in text
    assert "No operator could be measured" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| `ssa`")]
    assert line.split("|")[2:5] == ["  "] * 3


def test_the_gpu_command_fails_if_a_part_did(tmp_path: Path) -> None:
    """Without a GPU every part fails, and says so."""
    ended = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "none", "--minutes", "8"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert all(json.loads(line)["exit"] not in (0, "time is up") for line in ended.stdout.splitlines())
    assert len(ended.stdout.splitlines()) == 6
