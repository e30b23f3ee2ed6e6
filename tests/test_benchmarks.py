"""Benchmarks for a GPU machine run with the packages of training alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

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


def run(*words: str) -> list[dict]:
    command = [sys.executable, "-P", "-c", RUN, str(ROOT), str(ROOT / "benchmarks" / words[0]), *words[1:]]
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
