"""One file of every kind in a campaign is damaged, cut or deleted: each case is reported, or changes no result."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from known_campaign import seen
from polars import selectors as cs
from real_spec import real_spec
from warm import REAL, Warm

from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.pages.overview import OVERVIEW
from ablate.dashboards.data.user_errors import catch_user_error
from ablate.grid import Measure
from ablate.grid.errors import StoreError
from ablate.runners.attempts.submit_lock import submit_lock
from ablate.runners.attempts.worker_logs import worker_log
from ablate.runners.cli.app import execute
from ablate.store.campaign import Campaign
from ablate.store.files.annotations import annotate
from ablate.store.files.atomic import make_directory, write_json
from ablate.store.files.layout import Layout
from ablate.store.files.saved_texts import VIEWS
from ablate.store.files.shards import verify_shard
from ablate.store.ingest import ingest as ingesting
from ablate.store.store import Store

AFTER = """
probing = Probing(probes=(AttentionEntropy(), AttentionMaps()))
measure = Measure(name="mse", point={"sigma_x": 1, "sigma_f": 3})
base = grid.base.changed(probing=probing)
small = replace(grid, base=base, baseline={"operator": "softmax"}, measure=measure)
endless = base.changed(training=Training(steps=10**6), execution=Execution(device="cpu", checkpoint_s=0.05))
slow = Grid(name="slow", base=endless, seeds=range(1))
del grid
"""
IMPORTS = "from dataclasses import replace\nfrom ablate.grid import Measure\n"
IMPORTS += "from ablate import AttentionEntropy, AttentionMaps, Probing"
SPEC = real_spec("small", training="steps=3", execution="keep_weights=True", seeds=2, before=IMPORTS, after=AFTER)
JUDGE = """
from ablate import DeviantInputs
evaluations = (DeviantInputs(sigma=(1.0, 10.0), functions=3, sequences=2, points=5, prompts=()),)
"""

PATTERNS = {
    "start": "trials/*/{ok}/001/start.json",
    "end": "trials/*/{other}/001/end.json",
    "metric shard": "spool/*/*-00000[1-9]-metric.*.parquet",
    "evaluation shard": "spool/*/*-00000[1-9]-evaluation.*.parquet",
    "probe shard": "spool/*/*-00000[1-9]-probe.*.parquet",
    "joined metric shard": "spool/*/{run}-0000-000000-metric.*.parquet",
    "joined evaluation shard": "spool/*/{run}-0000-000000-evaluation.*.parquet",
    "joined probe shard": "spool/*/{run}-0000-000000-probe.*.parquet",
    "weights": "trials/*/{ok}/001/weights/*.pt",
    "artefact": "trials/*/{ok}/001/artefacts/*.npz",
    "later evaluation": "trials/*/{ok}/001/evaluations/*.json",
    "shard of a later evaluation": "trials/*/{other}/001/evaluations/*.parquet",
    "header": "grids/{grid}.json",
    "lines": "grids/{grid}.trials.jsonl",
    "judged": "grids/own.judged",
    "manifest": "submissions/{run}/manifest.jsonl",
    "index": "submissions/{slow}/manifest.idx",
    "owner": "owner",
    "submission": "submissions/{run}/submission.json",
    "logged run": "submissions/*/logged.json",
    "cancelled": "submissions/{run}/cancelled.json",
    "worker": "submissions/{run}/workers/a-0.json",
    "seen": "submissions/{run}/seen/*.json",
    "worker log": "submissions/{run}/logs/*",
    "notes": "notes.jsonl",
    "removal": "removals/*.json",
    "removed file": "trash/*/**/*.*",
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
    "lock of submissions": "submissions/.lock",
    "lock of evaluations": "trials/*/*/001/evaluations/lock",
}
"""One file of every kind, and where it lies: `ok` and `other` are trials, `run` and `slow` submissions."""

UNUSED = (
    *("weights", "artefact", "owner", "snapshot", "checkpoint", "query", "view", "log", "worker log", "removed file"),
    *("judged", "submission", "logged run", "cancelled", "worker", "seen", "looked"),
    *("lock", "lock of submissions", "lock of evaluations"),
)
"""Files from which no place takes a number."""

SHARDS = tuple(f"{joined}{table} shard" for joined in ("", "joined ") for table in ("metric", "evaluation", "probe"))
SINGLE = ("header", "lines", "heartbeat", "database", "published database")
GROUPS: dict[str, tuple[str, ...]] = {
    "unused": UNUSED,
    "shards": SHARDS,
    "attempts": ("start", "end"),
    "later": ("later evaluation", "shard of a later evaluation", "manifest", "index"),
    "marks": ("notes", "removal"),
    **{kind: (kind,) for kind in SINGLE},
}
"""Files that are damaged together: where a number changes, each of them is named."""

REBUILT = {"database", "published database", "looked", "lock", "lock of submissions", "lock of evaluations"}
"""Files that the next command makes again."""

FREE = {"heartbeat", "log", "worker log", "owner", "query", "view", "removed file"}
"""Files without a promise: text for people, signs of life, a token without which code needs `--trust`, the trash."""

UNPROMISED = {"later evaluation", "judged", "cancelled", "worker", "checkpoint", "seen", "notes"}
"""Files that may be deleted: without them, what they say was never said."""


def ablate(*arguments: object, code: int = 0) -> str:
    """Run a command in a process of its own, which has ended when the files are read: what it printed."""
    command = [sys.executable, "-P", "-m", "ablate", *map(str, arguments)]
    with Warm(command, preload=REAL, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        printed = process.communicate()[0]
    assert process.returncode == code
    return printed


def kill_in_training(spec: Path, root: Path) -> None:
    """Run the grid `slow` in a process that is killed after its first checkpoint."""
    command = [sys.executable, "-P", "-m", "ablate", "run", str(spec), "--grid", "slow", "--campaign", str(root)]
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
    (place / "judge.py").write_text(JUDGE)
    ablate("evaluate", "grid=small", "--with", place / "judge.py", "--campaign", root)
    layout = Layout(root)
    log_and_remove(root)
    ablate("sql", "--save", "mine", "SELECT 1", "--campaign", root)
    VIEWS.save(layout, "mine", '{"page": "/"}')
    annotate(layout, [(None, "small")], add=["good"], note="it looks fine")
    add_files_of_workers(layout, submission_of(layout, "small"))
    next(root.glob("trials/*/*/*/heartbeat")).with_name("log").write_text("a warning\n")
    for path in root.rglob("heartbeat"):
        os.utime(path, (0, 0))
    return root


def log_and_remove(root: Path) -> None:
    """Log two runs, whose ingest joins the first two small shards of each table, and remove one of them."""
    campaign = Campaign(root)
    campaign.grid("own", measure=Measure(name="loss"))
    for seed in range(2):
        with campaign.start("own", label="x", seed=seed) as logged:
            for step in range(1, 3):
                logged.log(step, loss=0.5)
    with pytest.MonkeyPatch.context() as patched:
        for name in ("LEAST", "MOST"):
            patched.setattr(ingesting, name, 2)
        Store.open(root).close()
    ablate("rm", "grid=own", "seed=1", "--campaign", root)


def add_files_of_workers(layout: Layout, run: str) -> None:
    """Add the files that workers of a cluster and their submission leave."""
    write_json(layout.submission(run) / "cancelled.json", {"schema": 1, "workers": []})
    write_json(layout.submission(run) / "workers" / "a-0.json", {"schema": 1, "lives": []})
    make_directory(layout.submission(run) / "seen")  # by an earlier release
    write_json(layout.submission(run) / "seen" / "a-0.json", {"schema": 1, "rows": [0, 4], "done": "1"})
    log = worker_log(layout, run, "1_0")
    make_directory(log.parent)
    log.write_text("it begins\n")
    with submit_lock(layout, print):
        pass


def submission_of(layout: Layout, grid: str) -> str:
    return next(name for name in layout.submission_ids() if f'"{grid}"' in layout.manifest(name).read_text())


def flip(path: Path) -> None:
    data = path.read_bytes() or b"\0"
    at = len(data) // 2
    path.unlink()  # other copies of the campaign have the same file
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[: len(data) * 2 // 5])


HARMS: dict[str, Callable[[Path], None]] = {"flipped": flip, "cut": cut, "deleted": Path.unlink}


class Said(NamedTuple):
    """The answer of one place."""

    numbers: Any
    """Its results, without warnings."""
    text: str
    """All that it says."""
    code: int = 0


def ask(root: Path, *words: str) -> Said:
    """Run a command in this process."""
    with redirect_stdout(StringIO()) as out:
        code = execute([*words, "--campaign", str(root), "--json"])
    text = out.getvalue()
    return Said(json.loads(text).get("data"), text, code)


def ask_status(root: Path) -> Said:
    found = ask(root, "status")
    return found._replace(numbers=found.numbers and found.numbers["grids"])


def ask_dashboard(root: Path) -> Said:
    """Read the header of every page, and verdicts, progress and damage of the page Overview."""
    campaigns = Campaigns([root])
    campaigns.ingest()
    report = campaigns.describe(root.name)
    found, problem = catch_user_error(lambda: seen(root, OVERVIEW, "?grid=small", ["verdicts", "progress", "left-out"]))
    slots = found.slots if found else {}
    rows = {
        name: each.data.with_columns(cs.float().round(9)).rows()
        for name, each in slots.items()
        if each.data is not None
    }
    numbers = [(rows.get(name), slots[name].caption) for name in ("verdicts", "progress") if name in slots]
    said = [f"{each.message} {rows.get(name)}" for name, each in slots.items()]
    return Said(numbers, f"{report.problem} {report.warnings} {problem} {said}")


PLACES: dict[str, Callable[[Path], Said]] = {
    "table": lambda root: ask(root, "table", "--grid", "small"),
    "status": ask_status,
    "dashboard": ask_dashboard,
    "check": lambda root: ask(root, "check"),
}


class Sound(NamedTuple):
    """The campaign before the damage."""

    root: Path
    said: dict[str, Said]
    content: str
    """Hash of all rows of the store, from which every page takes its numbers."""
    files: dict[str, Path]
    names: dict[str, list[str]]
    """By which the file of a kind is told: its path, and the names of the shards that were joined to it."""


@pytest.fixture(scope="module")
def sound(rich: Path) -> Sound:
    said = {name: place(rich) for name, place in PLACES.items()}
    assert said["check"].numbers == []
    with Store.open(rich) as store:
        ok, other, *_ = store.sql("SELECT trial FROM grid_trial WHERE grid = 'small' ORDER BY position")["trial"]
        content = store.content_hash()
    run, slow = (submission_of(Layout(rich), grid) for grid in ("small", "slow"))
    names = {"ok": ok, "other": other, "run": run, "slow": slow, "grid": "small"}
    paths = {kind: min(filter(Path.is_file, rich.glob(each.format(**names)))) for kind, each in PATTERNS.items()}
    members = {kind: verify_shard(path).members for kind, path in paths.items() if path.parts[-3] == "spool"}
    assert {kind for kind, found in members.items() if found} == {kind for kind in PATTERNS if "joined" in kind}
    files = {kind: path.relative_to(rich) for kind, path in paths.items()}
    named = {kind: [str(path), *(name for name, _ in members.get(kind, ()))] for kind, path in files.items()}
    return Sound(rich, said, content, files, named)


def copy(root: Path, target: Path, *, store: bool) -> Path:
    """Copy a campaign by hard links, but for its databases, which are changed in place."""

    def link(source: str, copied: str) -> None:
        (shutil.copy2 if Path(source).parent.name == "store" else os.link)(source, copied)

    ignore = None if store else shutil.ignore_patterns("store")
    return Path(shutil.copytree(root, target, ignore=ignore, copy_function=link))


CASES = [(group, harm, False) for group in GROUPS for harm in HARMS]
CASES += [(group, "deleted", True) for group, kinds in GROUPS.items() if not {*kinds} <= REBUILT]


@pytest.mark.parametrize(
    ("first", "group", "harm", "rebuilt"),
    [pytest.param(at % 4, *case, id=" ".join(map(str, case))) for at, case in enumerate(CASES)],
)
def test_damage_is_told_everywhere_or_changes_nothing(
    sound: Sound, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, first: int, group: str, harm: str, rebuilt: bool
) -> None:
    """Each place either shows what it showed before, or names the files. Which place looks first differs by case."""
    monkeypatch.setattr("ablate.runners.cli.monitor._MOST_INGEST_S", 600.0)  # on a busy machine a second is too short
    root = copy(sound.root, tmp_path / sound.root.name, store=not rebuilt)
    kinds = [kind for kind in GROUPS[group] if not rebuilt or sound.files[kind].parts[0] != "store"]
    for kind in kinds:
        HARMS[harm](root / sound.files[kind])
    order = [*PLACES][first:] + [*PLACES][:first]
    said = {name: PLACES[name](root) for name in order}

    promised = {*kinds} - REBUILT - FREE - (UNPROMISED if harm == "deleted" else set())
    for kind in promised:
        found = said["check"].numbers
        assert any(each["file"].endswith((*sound.names[kind],)) and each["remedy"] for each in found), (kind, found)
    if promised or not {*kinds} & {"query", "heartbeat", "database", "published database"}:
        assert said["check"].code == (6 if promised else 0), said["check"].text

    same = {name: said[name].numbers == sound.said[name].numbers for name in ("table", "status", "dashboard")}
    same["rows"], said["rows"] = read_rows(root, sound)
    wanted = [kind for kind in kinds if harm != "deleted" or kind not in UNPROMISED]
    assert same["table"] or wanted
    for name, unchanged in same.items():
        assert unchanged or all(tells(sound, kind, said[name].text) for kind in wanted), (name, said[name])


def read_rows(root: Path, sound: Sound) -> tuple[bool, Said]:
    """Return if the store has the same rows as before, and what it warns of."""
    try:
        with Store.open(root) as store:
            return store.content_hash() == sound.content, Said(None, " ".join(store.warnings()))
    except StoreError as error:  # a damaged block that no query has read so far
        return False, Said(None, str(error))


def tells(sound: Sound, kind: str, text: str) -> bool:
    """Return if `text` names the file; of a damaged database it is enough to say what makes it again."""
    if kind == "heartbeat":  # without one, an attempt has ended, and its end is missing
        return f"{sound.files[kind].parent}/end.json" in text
    return (
        "ablate check --rebuild" in text
        if kind in REBUILT
        else any(Path(name).name in text for name in sound.names[kind])
    )


def test_a_grid_that_lost_both_files_is_told_and_a_renamed_one_is_sound(sound: Sound, tmp_path: Path) -> None:
    root = copy(sound.root, tmp_path / sound.root.name, store=True)
    ablate("rename", "small", "other", "--campaign", root)
    assert ask(root, "check").numbers == []
    for path in (root / "grids").glob("other.*"):
        path.unlink()
    (told,) = ask(root, "check").numbers
    assert (told["file"], "trials of the grid" in told["problem"]) == ("grids/small.json", True)


def test_lost_shards_are_mended_as_check_says(sound: Sound, tmp_path: Path) -> None:
    shutil.copytree(sound.root.parent, tmp_path / "p", ignore=shutil.ignore_patterns("store"))
    root, spec = tmp_path / "p" / "c", tmp_path / "p" / "spec.py"
    lost = ("evaluation shard", "joined evaluation shard")
    for kind in lost:
        (root / sound.files[kind]).unlink()
    told = ask(root, "check").numbers
    for kind in lost:
        remedies = [each["remedy"] for each in told if each["file"].endswith((*sound.names[kind],))]
        assert any("ablate run SPEC --rerun-stale" in each for each in remedies), (kind, told)
    ablate("run", spec, "--grid", "small", "--rerun-stale", "--campaign", root, "--on", "inline")
    ablate("check", "--campaign", root)
    assert ask(root, "table", "--grid", "small") == sound.said["table"]


def test_every_file_of_a_campaign_is_of_one_of_the_kinds(rich: Path) -> None:
    assert sorted(kind for kinds in GROUPS.values() for kind in kinds) == sorted(PATTERNS)
    every = {path for path in rich.rglob("*") if path.is_file()}
    patterns = [each.format_map(defaultdict(lambda: "*")) for each in PATTERNS.values()]
    assert every == {path for each in patterns for path in rich.glob(each) if path.is_file()}
