"""One file of every kind in a campaign is damaged, cut or deleted: each case is reported, or changes no result."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from runners.cli.app import execute
from store.files.atomic import write_json
from store.files.layout import Layout
from store.files.saved_texts import VIEWS
from store.store import Store

SPEC = """
from grid import Grid, Measure, over
from runners import (
    AttentionEntropy, AttentionMaps, Execution, LinearFunctions, Probing, ShiftGrid, Training, Trial
)
from variants import gpt2, softmax, ssa
judged = ShiftGrid(sigma_x=(1,), sigma_f=(1, 3), functions=4, sequences=2, points=5)
base = Trial(
    task=LinearFunctions(points=5, batch=4, evaluation=judged),
    model=gpt2(layers=1, heads=2, width=8, max_positions=16),
    operator=softmax(),
    training=Training(steps=3),
    probing=Probing(probes=(AttentionEntropy(), AttentionMaps())),
    execution=Execution(device="cpu", keep_weights=True),
)
small = Grid(
    name="small",
    base=base,
    axes=[over("operator", [softmax(), ssa()])],
    seeds=range(3),
    baseline={"operator": "softmax"},
    measure=Measure(name="mse", point={"sigma_x": 1, "sigma_f": 3}),
)
slow = Grid(
    name="slow",
    base=base.model_copy(update={
        "training": Training(steps=10**6), "execution": Execution(device="cpu", checkpoint_s=0.05)
    }),
    seeds=range(1),
)
"""
JUDGE = """
from runners import DeviantInputs
evaluations = (DeviantInputs(sigma=(1.0, 10.0), functions=3, sequences=2, points=5, prompts=()),)
"""
KINDS = {
    "start": "trials/*/{ok}/001/start.json",
    "end": "trials/*/{ok}/001/end.json",
    "metric shard": "spool/*/*-metric.*.parquet",
    "evaluation shard": "spool/*/*-evaluation.*.parquet",
    "probe shard": "spool/*/*-probe.*.parquet",
    "weights": "trials/*/{ok}/001/weights/*.pt",
    "artefact": "trials/*/{ok}/001/artefacts/*.npz",
    "later evaluation": "trials/*/*/001/evaluations/*.json",
    "shard of a later evaluation": "trials/*/*/001/evaluations/*.parquet",
    "header": "grids/small.json",
    "lines": "grids/small.trials.jsonl",
    "judged": "grids/own.judged",
    "manifest": "submissions/{run}/manifest.jsonl",
    "index": "submissions/{run}/manifest.idx",
    "owner": "owner",
    "submission": "submissions/{run}/submission.json",
    "logged run": "submissions/*/logged.json",
    "cancelled": "submissions/{run}/cancelled.json",
    "worker": "submissions/{run}/workers/a-0.json",
    "snapshot": "snapshots/*.tar",
    "checkpoint": "trials/*/*/*/checkpoint/*.pt",
    "query": "queries/mine.sql",
    "view": "views/mine.json",
    "heartbeat": "trials/*/*/*/heartbeat",
    "log": "trials/*/*/*/log",
    "database": "store/live.duckdb",
    "published database": "store/snapshot.duckdb",
    "looked": "store/looked.json",
    "lock": "store/ingest.lock",
}
"""One file of every kind, and where it lies."""

REBUILT = {"database", "published database", "looked", "lock"}
"""Files that the next command makes again."""

FREE = {"heartbeat", "log", "owner", "query", "view"}
"""Files without a promise: text for people, signs of life, and a token without which code needs `--trust`."""

UNPROMISED = {"later evaluation", "judged", "cancelled", "worker", "checkpoint"}
"""Files that may be deleted: without them, what they say was never said."""


def ablate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, which has ended when the files are read."""
    return subprocess.run(
        [sys.executable, "-m", "runners", *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def kill_in_training(spec: Path, root: Path) -> None:
    """Run the grid `slow` in a process that is killed after its first checkpoint."""
    command = [sys.executable, "-m", "runners", "run", str(spec), "--grid", "slow", "--campaign", str(root)]
    with subprocess.Popen(
        [*command, "--on", "inline"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            while not list(root.glob("trials/*/*/*/checkpoint/*.pt")):
                assert process.poll() is None
                time.sleep(0.02)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with every kind of file; its processes have ended."""
    place = tmp_path_factory.mktemp("rich")
    spec, root = place / "spec.py", place / "c"
    spec.write_text(SPEC)
    kill_in_training(spec, root)
    made = ablate("run", str(spec), "--grid", "small", "--campaign", str(root), "--on", "inline")
    assert made.returncode == 0, made.stderr
    judge = place / "judge.py"
    judge.write_text(JUDGE)
    made = ablate("evaluate", "grid=small", "--with", str(judge), "--campaign", str(root))
    assert made.returncode == 0, made.stderr
    layout = Layout(root)
    logged = "import sys; from store.campaign import Campaign\nfrom grid.measure import Measure\n"
    logged += "c = Campaign(sys.argv[1]); c.grid('own', measure=Measure(name='loss'))\n"
    logged += "r = c.start('own', label='x', seed=0); r.log(1, loss=0.5); r.finish()\n"
    made = subprocess.run([sys.executable, "-c", logged, str(root)], check=False, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert ablate("sql", "--save", "mine", "SELECT 1", "--campaign", str(root)).returncode == 0
    VIEWS.save(layout, "mine", '{"page": "/"}')
    run = run_of(layout)
    write_json(layout.submission(run) / "cancelled.json", {"schema": 1, "workers": []})
    write_json(layout.submission(run) / "workers" / "a-0.json", {"schema": 1, "lives": []})
    next(root.glob("trials/*/*/*/heartbeat")).with_name("log").write_text("a warning\n")
    for path in root.rglob("heartbeat"):
        os.utime(path, (0, 0))
    return root


def run_of(layout: Layout) -> str:
    """The submission that trained the grid `small`."""
    return next(name for name in layout.submission_ids() if b'"grid": "small"' in sorted_json(layout.manifest(name)))


def sorted_json(path: Path) -> bytes:
    return re.sub(rb'"grid": ?', b'"grid": ', path.read_bytes())


def find(root: Path, kind: str) -> Path:
    layout = Layout(root)
    with Store.open(root) as store:
        ok = store.sql("SELECT trial FROM grid_trial WHERE grid = 'small' ORDER BY position LIMIT 1")["trial"][0]
    return sorted(root.glob(KINDS[kind].format(ok=ok, run=run_of(layout))))[0]


def flip(path: Path) -> None:
    data = path.read_bytes() or b"\0"
    at = len(data) // 2
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


HARMS: dict[str, Callable[[Path], None]] = {"flipped": flip, "cut": cut, "deleted": Path.unlink}


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = execute([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


class Sound(NamedTuple):
    """The campaign before the damage."""

    root: Path
    table: dict[str, Any]
    files: dict[str, Path]


@pytest.fixture(scope="module")
def sound(rich: Path) -> Sound:
    table, checked = (
        ablate(*words, "--campaign", str(rich), "--json") for words in (("table", "--grid", "small"), ("check",))
    )
    assert (checked.returncode, json.loads(checked.stdout)["data"]) == (0, [])
    return Sound(rich, json.loads(table.stdout), {kind: find(rich, kind).relative_to(rich) for kind in KINDS})


CASES = [(kind, harm, False) for kind in KINDS for harm in HARMS]
CASES += [(kind, "deleted", True) for kind in KINDS if kind not in REBUILT]


@pytest.mark.parametrize(("kind", "harm", "rebuilt"), CASES)
def test_damage_is_reported_or_changes_nothing(
    sound: Sound, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, harm: str, rebuilt: bool
) -> None:
    left_out = shutil.ignore_patterns("store") if rebuilt else None
    root = Path(shutil.copytree(sound.root, tmp_path / "c", ignore=left_out))
    path = root / sound.files[kind]
    path.chmod(0o644)
    HARMS[harm](path)

    code, checked = answer(capsys, "check", "--campaign", str(root))
    free = kind in REBUILT | FREE or (harm == "deleted" and kind in UNPROMISED)
    if free:
        assert code == 0 or kind in {"query", "heartbeat", "database", "published database"}, checked
    else:
        assert code == 6
        assert any(each["file"].endswith(path.name) and each["remedy"] for each in checked["data"]), checked

    code, table = answer(capsys, "table", "--campaign", str(root), "--grid", "small")
    if table.get("data") == sound.table["data"]:
        return
    told = re.compile(f"{re.escape(path.name)}|{path.parent.name}/{path.name}")
    assert told.search(json.dumps(table)), table
    if kind in REBUILT:  # no command reads a damaged database
        assert (code, "ablate rebuild" in table["error"]["message"]) == (6, True)
        return
    assert kind not in FREE
    assert told.search(json.dumps(answer(capsys, "status", "--campaign", str(root))[1]))
    with Store.open(root) as store:
        assert any(told.search(warning) for warning in store.warnings())  # as the header of the dashboard says


def test_a_lost_shard_is_mended_as_check_says(sound: Sound, tmp_path: Path) -> None:
    shutil.copytree(sound.root.parent, tmp_path / "p", ignore=shutil.ignore_patterns("store"))
    root, spec = tmp_path / "p" / "c", tmp_path / "p" / "spec.py"
    (root / sound.files["evaluation shard"]).unlink()
    found = ablate("check", "--campaign", str(root))
    assert (found.returncode, "ablate run SPEC --again" in found.stdout) == (6, True)
    made = ablate("run", str(spec), "--grid", "small", "--again", "--campaign", str(root), "--on", "inline")
    assert made.returncode == 0, made.stderr
    assert ablate("check", "--campaign", str(root)).returncode == 0
    table = ablate("table", "--grid", "small", "--campaign", str(root), "--json")
    assert json.loads(table.stdout) == sound.table


def test_every_kind_of_file_of_a_campaign_is_among_them(rich: Path) -> None:
    every = {path for path in rich.rglob("*") if path.is_file()}
    named = {path for pattern in KINDS.values() for path in rich.glob(pattern.format(ok="*", run="*"))}
    others = {path for path in every - named if path.suffix not in {".json", ".jsonl", ".parquet"}}
    assert {path.name for path in others} <= {"lock"}
