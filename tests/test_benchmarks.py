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
import json, runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dash", "duckdb", "plotly", "polars", "scipy", "submitit"):
            raise ImportError(f"{name} is not on a bare machine")

sys.meta_path.insert(0, Missing())
root = sys.argv[1]
sys.path[:0] = [root, root + "/benchmarks"]
for before, name, *words in json.loads(sys.argv[2]):
    exec(before)
    sys.argv = [f"{root}/benchmarks/{name}", *words]
    print("[]", flush=True)
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
BREAKS = (
    "from variants.paths import cpu\ndef run(*_):\n    raise Exception('no kernel')\ncpu.run.__code__ = run.__code__"
)
"""An error of a compiler is no RuntimeError; on a GPU it comes first when a kernel is run."""
SHORT = ("attention.py", "--lengths", "40", "--rounds", "1", "--operators")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("benchmarks") / "a.json"


@pytest.fixture(scope="module")
def measured(written: Path) -> list[list[dict]]:
    """The output of four commands; path "cpu" breaks before the third. One process imports torch for all."""
    commands = [
        ("", *SHORT, "principled", "--write", str(written)),
        ("", "training.py", "--steps", "10", "--path", "sdpa", "--operators", "softmax", "ssa"),
        (BREAKS, *SHORT, "ssa", "softmax"),
        ("", "training.py", "--path", "cpu", "--operators", "ssa", "softmax"),
    ]
    words = [sys.executable, "-P", "-c", RUN, str(ROOT), json.dumps(commands)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr
    return [[json.loads(line) for line in part.splitlines()] for part in ended.stdout.split("[]\n")[1:]]


def test_attention_is_measured_on_every_path(measured: list[list[dict]], written: Path) -> None:
    about, *rows = measured[0]
    assert {(row["operator"], row["path"]) for row in rows} == {
        ("fused attention", ""), ("principled", "cpu"), ("principled", "reference"),
    }  # fmt: skip
    assert json.loads(written.read_text()) == {**about, "rows": rows}


def test_training_is_measured_beside_a_loop_by_hand(measured: list[list[dict]]) -> None:
    _, good, bad = measured[1]
    assert good["ratio"] > 0
    assert good["tokens_per_s"] > 0
    assert "sdpa computes score 'exponential' only" in bad["error"]


def test_an_operator_that_breaks_loses_no_other(measured: list[list[dict]]) -> None:
    _, *rows = measured[2]
    broken = {(row["operator"], row["path"], row["error"]) for row in rows if "error" in row}
    assert broken == {(name, "cpu", "Exception: no kernel") for name in ("ssa", "softmax")}
    assert {row["operator"] for row in rows if "error" not in row} == {"fused attention", "softmax", "ssa"}
    _, *rows = measured[3]
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


def test_the_gpu_command_fails_if_a_part_did(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a GPU every part fails, and says so; two of the six are tried."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpu = importlib.import_module("gpu")
    assert len(gpu.PARTS) == 6
    assert sum(part.share for part in gpu.PARTS) == pytest.approx(1)
    monkeypatch.setattr(gpu, "PARTS", [part._replace(share=0.5) for part in (gpu.PARTS[0], gpu.PARTS[2])])
    monkeypatch.setattr(sys, "argv", ["gpu.py", "none", "--minutes", "8"])
    assert gpu.main() == 1
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["part"] for line in told] == ["attention-none-d64", "training-none-tiny"]
    assert all(line["exit"] not in (0, "time is up") for line in told)
