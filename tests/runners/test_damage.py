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
from real_spec import real_spec
from warm import REAL, Warm

from grid import Measure
from grid.errors import StoreError
from runners.cli.app import execute
from store.campaign import Campaign
from store.files.atomic import write_json
from store.files.layout import Layout
from store.files.saved_texts import VIEWS
from store.store import Store

AFTER = """
probing = Probing(probes=(AttentionEntropy(), AttentionMaps()))
measure = Measure(name="mse", point={"sigma_x": 1, "sigma_f": 3})
base = grid.base.changed(probing=probing)
small = replace(grid, base=base, baseline={"operator": "softmax"}, measure=measure)
endless = base.changed(training=Training(steps=10**6), execution=Execution(device="cpu", checkpoint_s=0.05))
slow = Grid(name="slow", base=endless, seeds=range(1))
del grid
"""
IMPORTS = "from dataclasses import replace\nfrom grid import Measure\n"
IMPORTS += "from runners import AttentionEntropy, AttentionMaps, Probing"
SPEC = real_spec("small", training="steps=3", execution="keep_weights=True", seeds=2, before=IMPORTS, after=AFTER)
JUDGE = """
from runners import DeviantInputs
evaluations = (DeviantInputs(sigma=(1.0, 10.0), functions=3, sequences=2, points=5, prompts=()),)
"""

PATTERNS = {
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

BESIDE = (
    ("weights", "artefact", "later evaluation", "manifest", "logged run", "snapshot", "view", "log"),
    ("shard of a later evaluation", "index", "checkpoint", "judged", "heartbeat", "query"),
    ("submission", "cancelled", "worker"),
    ("looked", "lock"),
)
"""Files that hold no row of the table; those of a group are damaged together."""
ALONE = [(kind,) for kind in PATTERNS if not any(kind in group for group in BESIDE)]

REBUILT = {"database", "published database", "looked", "lock"}
"""Files that the next command makes again."""

FREE = {"heartbeat", "log", "owner", "query", "view"}
"""Files without a promise: text for people, signs of life, and a token without which code needs `--trust`."""

UNPROMISED = {"later evaluation", "judged", "cancelled", "worker", "checkpoint"}
"""Files that may be deleted: without them, what they say was never said."""


def ablate(*arguments: object, code: int = 0) -> str:
    """Run a command in a process of its own, which has ended when the files are read: what it printed."""
    command = [sys.executable, "-P", "-m", "runners", *map(str, arguments)]
    with Warm(command, preload=REAL, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        printed = process.communicate()[0]
    assert process.returncode == code
    return printed


def kill_in_training(spec: Path, root: Path) -> None:
    """Run the grid `slow` in a process that is killed after its first checkpoint."""
    command = [sys.executable, "-P", "-m", "runners", "run", str(spec), "--grid", "slow", "--campaign", str(root)]
    with Warm([*command, "--on", "inline"], preload=REAL, stderr=subprocess.DEVNULL, start_new_session=True) as process:
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
    ablate("run", spec, "--grid", "small", "--campaign", root, "--on", "inline")
    judge = place / "judge.py"
    judge.write_text(JUDGE)
    ablate("evaluate", "grid=small", "--with", judge, "--campaign", root)
    campaign = Campaign(root)
    campaign.grid("own", measure=Measure(name="loss"))
    with campaign.start("own", label="x", seed=0) as logged:
        logged.log(1, loss=0.5)
    ablate("sql", "--save", "mine", "SELECT 1", "--campaign", root)
    layout = Layout(root)
    VIEWS.save(layout, "mine", '{"page": "/"}')
    run = submission_of_small(layout)
    write_json(layout.submission(run) / "cancelled.json", {"schema": 1, "workers": []})
    write_json(layout.submission(run) / "workers" / "a-0.json", {"schema": 1, "lives": []})
    next(root.glob("trials/*/*/*/heartbeat")).with_name("log").write_text("a warning\n")
    for path in root.rglob("heartbeat"):
        os.utime(path, (0, 0))
    return root


def submission_of_small(layout: Layout) -> str:
    return next(name for name in layout.submission_ids() if b'"small"' in layout.manifest(name).read_bytes())


def flip(path: Path) -> None:
    data = path.read_bytes() or b"\0"
    at = len(data) // 2
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 5])


HARMS: dict[str, Callable[[Path], None]] = {"flipped": flip, "cut": cut, "deleted": Path.unlink}


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = execute([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


class Sound(NamedTuple):
    """The campaign before the damage."""

    root: Path
    table: dict[str, Any]
    status: dict[str, Any]
    content: str
    """Hash of all rows of the store, from which the dashboard takes every number."""
    files: dict[str, Path]


@pytest.fixture(scope="module")
def sound(rich: Path) -> Sound:
    table = json.loads(ablate("table", "--grid", "small", "--campaign", rich, "--json"))
    assert json.loads(ablate("check", "--campaign", rich, "--json"))["data"] == []
    with Store.open(rich) as store:
        ok = store.sql("SELECT trial FROM grid_trial WHERE grid = 'small' ORDER BY position LIMIT 1")["trial"][0]
        content = store.content_hash()
    status = json.loads(ablate("status", "--campaign", rich, "--json"))
    names = {"ok": ok, "run": submission_of_small(Layout(rich))}
    files = {kind: min(rich.glob(pattern.format(**names))).relative_to(rich) for kind, pattern in PATTERNS.items()}
    return Sound(rich, table, status, content, files)


CASES = [
    (kinds, harm, False)
    for at, kinds in enumerate((*ALONE, *BESIDE))
    for harm in (("flipped", "cut")[at % 2], "deleted")
]
CASES += [(kinds, "deleted", True) for kinds in (*ALONE, *BESIDE) if not REBUILT & {*kinds}]


@pytest.mark.parametrize(("kinds", "harm", "rebuilt"), CASES)
def test_damage_is_reported_or_changes_nothing(
    sound: Sound, tmp_path: Path, capsys: pytest.CaptureFixture[str], kinds: tuple[str, ...], harm: str, rebuilt: bool
) -> None:
    left_out = shutil.ignore_patterns("store") if rebuilt else None
    root = Path(shutil.copytree(sound.root, tmp_path / "c", ignore=left_out))
    for kind in kinds:
        path = root / sound.files[kind]
        path.chmod(0o644)
        HARMS[harm](path)

    code, checked = answer(capsys, "check", "--campaign", str(root))
    promised = {*kinds} - REBUILT - FREE - (UNPROMISED if harm == "deleted" else set())
    for kind in promised:
        name = sound.files[kind].name
        assert any(each["file"].endswith(name) and each["remedy"] for each in checked["data"]), (kind, checked)
    if promised or not {*kinds} & {"query", "heartbeat", "database", "published database"}:
        assert code == (6 if promised else 0), checked

    code, table = answer(capsys, "table", "--campaign", str(root), "--grid", "small")
    if table.get("data") == sound.table["data"]:
        check_that_nothing_else_changed(
            sound, root, capsys, () if harm == "deleted" and {*kinds} & UNPROMISED else kinds
        )
        return
    (kind,) = kinds
    told = re.compile(f"{re.escape(path.name)}|{path.parent.name}/{path.name}")
    assert told.search(json.dumps(table)), table
    if kind in REBUILT:  # no command reads a damaged database
        assert (code, "ablate rebuild" in table["error"]["message"]) == (6, True)
        return
    assert kind not in FREE
    assert told.search(json.dumps(answer(capsys, "status", "--campaign", str(root))[1]))
    with Store.open(root) as store:
        assert any(told.search(warning) for warning in store.warnings())  # as the header of the dashboard says


def check_that_nothing_else_changed(
    sound: Sound, root: Path, capsys: pytest.CaptureFixture[str], kinds: tuple[str, ...]
) -> None:
    """`status` and the rows of the store are as before the damage, or each names one of the files."""
    _, status = answer(capsys, "status", "--campaign", str(root))
    content = ""
    with Store.open(root) as store:
        warnings = " ".join(store.warnings())
        try:
            content = store.content_hash()
        except StoreError as error:  # a damaged block that no query has read so far
            warnings = str(error)
    for same, said in (
        (status["data"]["grids"] == sound.status["data"]["grids"], json.dumps(status["warnings"])),
        (content == sound.content, warnings),
    ):
        told = any(sound.files[kind].name in said for kind in kinds) or (
            REBUILT & {*kinds} and "ablate rebuild" in said
        )
        assert same or not kinds or told, (kinds, said)


def test_a_lost_shard_is_mended_as_check_says(sound: Sound, tmp_path: Path) -> None:
    shutil.copytree(sound.root.parent, tmp_path / "p", ignore=shutil.ignore_patterns("store"))
    root, spec = tmp_path / "p" / "c", tmp_path / "p" / "spec.py"
    (root / sound.files["evaluation shard"]).unlink()
    assert "ablate run SPEC --rerun-stale" in ablate("check", "--campaign", root, code=6)
    ablate("run", spec, "--grid", "small", "--rerun-stale", "--campaign", root, "--on", "inline")
    ablate("check", "--campaign", root)
    assert json.loads(ablate("table", "--grid", "small", "--campaign", root, "--json")) == sound.table


def test_every_kind_of_file_of_a_campaign_is_among_them(rich: Path) -> None:
    every = {path for path in rich.rglob("*") if path.is_file()}
    named = {path for pattern in PATTERNS.values() for path in rich.glob(pattern.format(ok="*", run="*"))}
    others = {path for path in every - named if path.suffix not in {".json", ".jsonl", ".parquet"}}
    assert {path.name for path in others} <= {"lock"}
