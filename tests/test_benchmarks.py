"""Benchmarks for a GPU machine run with the packages of training alone."""

import ast
import functools
import importlib
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch._dynamo
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from torch import Tensor
from torch._dynamo.utils import counters

from ablate.training.loop import compilation
from ablate.variants import Heads, Operator, gpt2
from ablate.variants.papers.catalogue import catalogue
from ablate.variants.paths.choose import PATHS

ROOT = Path(__file__).parent.parent
RUN = """
import json, runpy, sys
from importlib.machinery import PathFinder

root, commands, missing = sys.argv[1], *map(json.loads, sys.argv[2:])
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name.partition(".")[0] in missing else find(name, *more)
sys.path[:0] = [root + "/src", root + "/benchmarks"]
for before, name, *words in commands:
    exec(before)
    sys.argv = [f"{root}/benchmarks/{name}", *words]
    print("[]", flush=True)
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
BREAKS = (
    "from ablate.variants.paths import cpu\n"
    "def run(*_):\n    raise Exception('no kernel')\ncpu.run.__code__ = run.__code__"
)
"""An error of a compiler is no RuntimeError; on a GPU it comes first when a kernel is run."""
CAUGHT = "sys.exit = lambda code: print(json.dumps({'exit': code}))"
WRITES = """
import sys
assert {"softmax", "cuda"} < {*sys.argv}
open(sys.argv[-1], "w").write('{"rows": [{}, {}, {"error": "no memory"}]}')
"""
SHORT = ("attention.py", "--lengths", "40", "--rounds", "1", "--operators")


def missing_packages() -> list[str]:
    """List what can be imported here, but not on a machine with the packages that gpu.py names and what they need."""
    words = ast.get_docstring(ast.parse((ROOT / "benchmarks" / "gpu.py").read_text()))
    left, there = re.split(r",\s|\sand\s", re.search(r"the\s+packages\s(.*?);", words, re.DOTALL)[1]), {"ablate"}
    while left:
        name = canonicalize_name(left.pop())
        if name not in there:
            there.add(name)
            needed = map(Requirement, metadata.requires(name) or ())
            left += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    installed = metadata.packages_distributions().items()
    return [module for module, owners in installed if there.isdisjoint(map(canonicalize_name, owners))]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("benchmarks") / "a.json"


@pytest.fixture(scope="module")
def measured(written: Path) -> list[list[dict]]:
    """The output of six commands; path "cpu" breaks before the fourth. One process imports torch for all."""
    commands = [
        ("", *SHORT, "principled", "--write", str(written)),
        ("", "training_speed.py", "--steps", "10", "--path", "sdpa", "--operators", "softmax", "ssa"),
        ("", "exactness.py", "--operators", "ssa", "--channels", "64", "--dtypes", "bfloat16"),
        (BREAKS, *SHORT, "ssa", "softmax"),
        ("", "training_speed.py", "--path", "cpu", "--operators", "ssa", "softmax"),
        (CAUGHT, "exactness.py", "--operators", "ssa", "--channels", "64", "--dtypes", "bfloat16"),
    ]
    words = [sys.executable, "-P", "-c", RUN, str(ROOT), json.dumps(commands), json.dumps(missing_packages())]
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


def test_exactness_is_measured_on_every_path(measured: list[list[dict]]) -> None:
    about, *rows = measured[2]
    assert about["length"] == 257
    assert [(row["path"], row["mask"]) for row in rows] == [
        (p, m) for m in ("causal", "padding") for p in ("cpu", "reference")
    ]
    assert all(row["within"] and row["repeats"] and 0 < row["largest_error"] < 0.01 for row in rows)
    _, *rows = measured[5]  # path "cpu" is broken
    assert [row["within"] for row in rows if "within" in row] == [False, True] * 2
    assert rows[-1] == {"exit": 1}


@pytest.mark.parametrize("wrong", [1.02, float("nan")])
def test_a_wrong_gradient_is_beyond_the_budget(
    load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    exactness = load("exactness")
    cpu = next(path for path in PATHS if path.name == "cpu")

    def run(operator: Operator, heads: Heads, numbers: dict[str, Tensor]) -> Tensor:
        output = cpu.run(operator, heads, numbers)
        output.register_hook(lambda gradient: gradient * wrong)
        return output

    monkeypatch.setattr(exactness, "PATHS", (cpu._replace(run=run), PATHS[-1]))
    setting = exactness.Setting(torch.bfloat16, 64, padded=False)
    assert [row["within"] for row in exactness.measure("ssa", setting, "cpu")] == [False, True]


def test_trials_side_by_side_are_measured(
    load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["packing.py", "--processes", "1", "--steps", "2"])
    load("packing").main()
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert row["processes"] == 1
    assert row["steps_per_s"] > 0


def test_an_operator_that_breaks_loses_no_other(measured: list[list[dict]]) -> None:
    _, *rows = measured[3]
    broken = {(row["operator"], row["path"], row["error"]) for row in rows if "error" in row}
    assert broken == {(name, "cpu", "Exception: no kernel") for name in ("ssa", "softmax")}
    assert {row["operator"] for row in rows if "error" not in row} == {"fused attention", "softmax", "ssa"}
    _, *rows = measured[4]
    assert [row["error"] for row in rows] == ["Exception: no kernel"] * 2


def test_the_page_takes_files_of_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths at which an operator broke are empty; a file may have errors alone."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    page = importlib.import_module("performance_page")
    files = {path.stem: json.loads(path.read_text()) for path in page.RESULTS.glob("*.json")}
    attention, training, vectorised = (
        files[f"{n}-h200{m}"] for n, m in (("attention", "-d64"), ("training", "-tiny"), ("vectorised", ""))
    )
    vectorised["rows"][1]["ratio"] = 1.254
    attention["commit"] = None
    broken = {"length": 16384, "operator": "ssa", "path": "triton", "error": "OutOfMemoryError"}
    at = [place for place, row in enumerate(attention["rows"]) if (row["operator"], row["length"]) == ("ssa", 16384)]
    attention["rows"][at[0]] = broken
    training["rows"] = [{"size": "125m", "operator": "ssa", "path": "triton", "error": "OutOfResources: shared memory"}]
    packing = {
        **vectorised,
        "steps": 9,
        "rows": [{"processes": 1, "steps_per_s": 2}, {"processes": 8, "steps_per_s": 7}],
    }
    given = {
        "attention-h200": attention,
        "training-h200": training,
        "vectorised-h200": vectorised,
        "packing-h200": packing,
    }
    for name, each in given.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(each))
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    text = page.make_performance_page()["performance.md"]
    assert "No operator could be measured" in text
    lines = [line for line in text.splitlines() if line.startswith("| `ssa` | triton")]
    assert [line.split("|")[-4:-1] for line in lines] == [["  "] * 3] * 2  # longest length, share of peak, memory


def test_a_target_is_met_if_all_that_was_measured_is_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """If today's rule takes another path than was measured, nothing was. Numbers are judged before they are rounded."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    targets = importlib.import_module("performance_targets")
    usual = {"path": "triton", "chosen": True}
    rows = [
        {
            **usual,
            "operator": "fused attention",
            "path": "FLASH_ATTENTION",
            "length": 2048,
            "forward_ms": 2,
            "both_ms": 6,
        },
        {**usual, "operator": "softmax", "length": 2048, "forward_ms": 3, "both_ms": 11, "both_ratio": 1.0504},
        {**usual, "operator": "softmax", "length": 1024, "forward_ms": 1, "both_ms": 2, "both_ratio": 9},
        {**usual, "operator": "softmax", "length": 4096, "both_ratio": 0, "chosen": False, "path": "sdpa"},
        {**usual, "operator": "ssa", "length": 2048, "forward_ms": 3, "both_ms": 23, "both_ratio": 2},
        {"operator": "cog", "length": 2048, "path": "triton", "error": "OutOfMemoryError"},
    ]
    text = targets.write_targets({"attention-h200-d128": {"rows": rows, "shape": {}, "date": "2026-11-28"}})
    for line in (
        "`softmax`: at most 1.05 | 1.050 | no",
        "speed of `softmax` / fused attention, forward: at least 0.7 | 0.667 | no",
        "speed of `softmax` / fused attention, backward: at least 0.5 | 0.500 | yes",
        "time of `ssa` / `softmax`: at most 1.35 | 1.000 to 2.500 | no",
        "time of `cog` / `softmax`: at most 1.35 | unmeasured | ",
        "tokens per second of `softmax`, 125M: at least 400,000 | unmeasured | ",
    ):
        assert f"| {line} |" in text


def test_the_gpu_command_fails_if_a_part_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Three of the eight parts are tried, without warm-up; short programs stand for them. One does not end in time."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    gpu = importlib.import_module("gpu")
    assert len(gpu.PARTS) == 8
    assert gpu.WARM_UP + sum(part.share for part in gpu.PARTS) == pytest.approx(1)
    (tmp_path / "attention.py").write_text(WRITES)
    (tmp_path / "training_speed.py").write_text("raise SystemExit(3)")
    (tmp_path / "packing.py").write_text("import time; time.sleep(60)")
    results = {name: tmp_path / "results" / f"{name}.json" for name in ("attention-none-d64", "packing-none")}
    results["packing-none"].parent.mkdir()
    for file in results.values():
        file.write_text("old")
    monkeypatch.setattr(gpu, "HERE", tmp_path)
    tried = (gpu.PARTS[0], gpu.PARTS[4], gpu.PARTS[6])
    monkeypatch.setattr(gpu, "PARTS", [part._replace(share=0.3, quick=()) for part in tried])
    monkeypatch.setattr(sys, "argv", ["gpu.py", "none", "--parts", "tests"])
    with pytest.raises(SystemExit):
        gpu.main()
    assert "no part begins with tests; there are attention-NAME-d64, " in capfd.readouterr().err
    for parts, minutes, code in (
        (("attention",), "1", 0),
        (("attention", "training"), "1", 1),
        (("packing",), "0.005", 1),
    ):
        monkeypatch.setattr(sys, "argv", ["gpu.py", "none", "--minutes", minutes, "--parts", *parts])
        assert gpu.main() == code
    ended = [list(json.loads(line).values()) for line in capfd.readouterr().out.splitlines()]
    assert [(part, *how) for part, _, *how in ended[1:]] == [
        ("attention-none-d64", 0, 2, False),
        ("training-none-tiny", 3, 0, True),
        ("packing-none", "time is up", 0, True),
    ]
    assert [file.read_text() for file in results.values()] == ['{"rows": [{}, {}, {"error": "no memory"}]}', "old"]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Load a benchmark whose graphs are run as they are traced, and at most one of a function."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    monkeypatch.setattr(compilation, "BACKEND", "eager")
    trace = logging.getLogger("torch.__trace")
    level = trace.level
    trace.setLevel(logging.WARNING)  # else pytest keeps every word of it
    with torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=False):
        yield importlib.import_module
    trace.setLevel(level)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call")
def test_both_sides_of_training_are_compiled_for_every_operator(
    load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a GPU they are; here the trial asks for it. At the limit the loop by hand fails, too."""
    training = load("training_speed")
    compiled = functools.partial(training.trial_of, compiled=True)
    monkeypatch.setattr(training, "trial_of", lambda *given, **_: compiled(*given))
    monkeypatch.setattr(training, "TURN", 1)
    monkeypatch.setitem(training.SIZES, "tiny", (gpt2(layers=1, heads=1, width=8, max_positions=32), training._SMALL))
    monkeypatch.setattr(sys, "argv", ["training_speed.py", "--steps", "2", "--operators", "softmax", "ssa"])
    before = counters["stats"]["unique_graphs"]
    training.main()
    assert counters["stats"]["unique_graphs"] == before + 4
    torch._dynamo.config.recompile_limit = 0
    training.main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    errors = [row.get("error", "")[:23] for row in rows if "operator" in row]
    assert errors == ["", "", *["FailOnRecompileLimitHit"] * 2]


def test_flex_attention_is_compiled_for_every_length(
    load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit there is no number. On a CPU it has no backward."""
    attention = load("attention")
    setup = attention.Setup(1, 2, 16, "cpu", torch.float32)
    plain = attention.fused

    def fused(length: int, setup: object) -> dict:
        found = plain(length, setup)
        made = torch.Generator().manual_seed(0)
        inputs = [setup.draw(2, length, 16, made).detach() for _ in range(3)]
        forward = attention.steps_of(attention.by_flex(length, setup, inputs), inputs)["forward"]
        return {**found, "FLEX": {"forward": forward, "both": forward}}

    monkeypatch.setattr(attention, "fused", fused)
    errors = []
    for limit in (1, 0):
        torch._dynamo.config.recompile_limit = limit
        for length in (128, 256):
            rows = attention.measure(length, (), 1, setup)
            errors += [row.get("error", "")[:23] for row in rows if row["path"] == "FLEX"]
    assert errors == ["", "", *["FailOnRecompileLimitHit"] * 2]


@pytest.mark.filterwarnings("ignore:Dynamo detected a call")
def test_more_operators_than_the_compiler_keeps_graphs_of_are_compiled(load: Callable[[str], ModuleType]) -> None:
    """By the path that compiled training takes; a forward pass without gradients is a graph of its own."""
    attention = load("attention")
    torch._dynamo.config.recompile_limit = 2
    names = ("softmax", "affine_scaled", "principled")
    rows = attention.measure(40, names, 1, attention.Setup(1, 2, 16, "cpu", torch.float32, compiled=True))
    assert [(row["operator"], row["path"]) for row in rows] == [
        ("fused attention", ""), ("softmax", "sdpa"), ("affine_scaled", "sdpa"), ("principled", "reference"),
    ]  # fmt: skip
    assert all(row["both_ms"] > 0 for row in rows)


def test_rows_survive_a_break_of_a_later_length(
    load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Even if it comes while the file is written."""
    attention, file = load("attention"), tmp_path / "a.json"

    def cut(path: Path, text: str, **_: object) -> None:
        with path.open("w") as half:
            half.write(text[: len(text) // 2])
        raise KeyboardInterrupt

    def measure(length: int, *_: object) -> list[dict]:
        if length == 41:
            monkeypatch.setattr(Path, "write_text", cut)
        return [{"length": length}]

    monkeypatch.setattr(attention, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["attention.py", "--lengths", "40", "41", "--write", str(file)])
    with pytest.raises(KeyboardInterrupt):
        attention.main()
    assert json.loads(file.read_text())["rows"] == [{"length": 40}]


def test_the_roofline_counts_the_products_of_the_operator(load: Callable[[str], ModuleType]) -> None:
    attention, paths = load("attention"), {path.name: path for path in PATHS}
    setup = attention.Setup(2, 4, 16, "cpu", torch.float32)

    def count(name: str, path: str, length: int = 256) -> dict[str, float]:
        return attention.flops_of(catalogue()[name].make(), paths[path], length, setup)

    pairs = 2 * 4 * 256**2 / 2 * 2 * 2 * 16
    """Visible pairs of all heads, with two products of 16 channels."""
    assert count("softmax", "sdpa") == count("softmax", "cpu") == {"forward": pairs, "both": 3 * pairs}
    assert count("principled", "cpu")["forward"] > pairs
    linear = count("linear_elu", "linear")
    assert linear["forward"] < pairs
    doubled = {what: pytest.approx(2 * each, rel=0.01) for what, each in linear.items()}
    assert count("linear_elu", "linear", 512) == doubled  # sums over 4 and 8 chunks, as products, are under 1 % of it


def test_a_record_of_a_gpu_has_its_software(load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    attention = load("attention")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(attention, "ask_gpus", lambda *_: [["570.1"]])
    monkeypatch.setattr(attention, "gpu_software", lambda _: {"cuda": "12.8", "cudnn": "91002"})
    about = attention.describe("cuda")
    assert [about[name] for name in ("gpu", "driver", "cuda", "cudnn")] == ["NVIDIA H200", "570.1", "12.8", "91002"]


def test_every_tile_in_use_is_among_those_that_are_timed(load: Callable[[str], ModuleType]) -> None:
    tiles = load("tiles")
    cases = [*tiles.all_cases()]
    assert len(set(cases)) == len(cases)
    for (precision, width, gated), each in tiles.TILES.items():
        if precision == "half":
            used = [tiles.Case(width, gated, kernel, getattr(each, kernel)) for kernel in tiles.Tiles._fields]
            assert set(used) <= set(cases)
