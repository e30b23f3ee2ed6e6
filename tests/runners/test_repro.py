"""A finished trial run again: equal bits from its snapshot, and words for what differs without one."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from real_spec import real_spec
from user_work_tree import copied_rooms, git

from ablate.runners.cli.app import execute
from ablate.runners.execution.repro import ValueAddress, _prepare, differences, read_recorded
from ablate.runners.rerun import rerun
from ablate.store.files.atomic import parse_object, read_json
from ablate.store.files.layout import Layout
from ablate.store.files.trust import trust
from ablate.training.trial import Execution

MINE = """
from typing import ClassVar, Literal
from helper import power
from ablate.variants import LogScore, Operator

class Mine(LogScore):
    source: ClassVar[str] = "mine"
    kind: Literal["mine"] = "mine"

    def log_score(self, a):
        return power(a)

    def oracle(self, a):
        import math
        return math.exp(power(a))
"""
SPEC = real_spec("mine", training="steps=4", operators="Operator(score=Mine())", seeds=1, before=MINE).replace(
    'device="cpu", ', ""
)


def process(*arguments: str | Path, path: str) -> "subprocess.CompletedProcess[str]":
    variables = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}  # the work tree has what it had
    return subprocess.run(
        [sys.executable, "-P", *arguments], env=variables, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign `c` of one trial, submitted from the dirty work tree `user` with an untracked module."""
    place = tmp_path_factory.mktemp("submitted")
    rooms, user = copied_rooms(place / "rooms"), place / "user"
    user.mkdir()
    (user / "my.py").write_text("first = True\n")
    git(user, "init", "-q")
    git(user, "add", ".")
    git(user, "commit", "-qm", "first")
    (user / "my.py").write_text(SPEC)
    (user / "helper.py").write_text("def power(a):\n    return 1.5 * a\n")
    command = ("-m", "ablate", "run", user / "my.py", "--campaign", place / "c", "--on", "inline")
    done = process(*command, path=f"{rooms}:{user}")
    assert done.returncode == 0, done.stderr
    change_record(place, environment={"cpu": "an abacus"})
    return place


def change_record(place: Path, **fields: dict[str, Any] | None) -> None:
    layout = Layout(place / "c")
    (submission,) = layout.submission_ids()
    path = layout.submission_record(submission)
    data = read_json(path)
    changed = {name: each and {**data[name], **each} for name, each in fields.items()}
    path.write_text(json.dumps({**data, **changed}))


@pytest.fixture
def place(submitted: Path, tmp_path: Path) -> Path:
    for part in ("c", "user"):
        shutil.copytree(submitted / part, tmp_path / "s" / part)
    trust(Layout(tmp_path / "s" / "c"), "code")
    return tmp_path / "s"


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Repro = Callable[..., Done]


def one_key(place: Path) -> str:
    (found,) = Layout(place / "c").trial_keys()
    return found[:9]


@pytest.fixture
def repro(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Repro:
    """The command in this process, and training, too, with what a process of its own would be given."""

    def run(request: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        assert variables["PYTHONPATH"].split(os.pathsep) == [each for each in sys.path if each]
        assert (variables["PYTHONSAFEPATH"], variables["OMP_NUM_THREADS"]) == ("1", "1")
        monkeypatch.delitem(sys.modules, "helper", raising=False)  # the user's, of another test
        rerun(request)

    monkeypatch.setattr("ablate.runners.execution.repro._run", run)

    def act(*flags: str | Path, key: str | None = None) -> Done:
        words = (key or one_key(place)).split()
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.syspath_prepend(place / "user")
            code = execute(["repro", *words, "--campaign", str(place / "c"), *map(str, flags)])
        return Done(code, *capsys.readouterr())

    return act


def equal(place: Path) -> str:
    tables = [pq.read_table(path) for path in Layout(place / "c").shards()]
    errors = sum(len(table["se_items"].drop_null()) for table in tables if "se_items" in table.column_names)
    load = sum(name.startswith("system.") for table in tables for name in table["name"].to_pylist())  # after 10 s
    return f"equal: {sum(len(table) for table in tables) + errors - load} values\n"


def test_from_its_snapshot_a_trial_is_equal_whatever_was_edited_since(place: Path, tmp_path: Path) -> None:
    (place / "user" / "helper.py").write_text("def power(a):\n    return 2.5 * a\n")
    (place / "user" / "my.py").unlink()
    rooms = copied_rooms(place / "rooms")
    training = rooms / "ablate" / "training" / "loop" / "train.py"
    training.write_text(training.read_text().replace("rate = self._training.lr(step)", "rate = 0.0"))
    command = ["repro", one_key(place), "--campaign", str(place / "c"), "--keep", str(tmp_path / "kept")]
    done = process("-m", "ablate", *command, path=f"{rooms}:{place / 'user'}")
    assert (done.returncode, done.stdout) == (0, equal(place)), done.stderr
    assert "here and an abacus where it was submitted" in done.stderr
    assert "code is not what" not in done.stderr
    assert "1.5" in (tmp_path / "kept" / "tree" / "user" / "helper.py").read_text()
    assert execute(command) == 2  # the place is taken


def test_without_a_snapshot_the_code_that_is_here_runs_and_what_changed_is_named(place: Path, repro: Repro) -> None:
    change_record(place, snapshot=None, job={"files": [str(place / "user" / "my.py")]})
    (place / "user" / "helper.py").write_text("def power(a):\n    return 2.5 * a\n")
    done = repro()
    assert done.returncode == 4, done.stderr
    assert "the code is not what the trial ran: helper changed since" in done.stderr
    assert "metric grad_norm at step" in done.stdout
    (place / "user" / "my.py").write_text(SPEC.replace("LogScore):", "LogScore):\n    strength: float = 1.0"))
    done = repro()
    assert (done.returncode, done.stdout) == (2, "")


def test_the_record_of_release_0_1_names_what_is_run(place: Path, repro: Repro) -> None:
    entry = {"trial": "runners.trial:Trial", "train": "runners.training:train", "preload": ["runners.training.loop"]}
    change_record(place, snapshot=None, job={"files": [str(place / "user" / "my.py")], "entry": entry})
    done = repro()
    assert (done.returncode, done.stdout) == (0, equal(place)), done.stderr


def test_a_snapshot_of_an_earlier_release_is_told_what_it_asks_for(place: Path, tmp_path: Path) -> None:
    entry = {"trial": "runners.trial:Trial", "train": "runners.training:train", "preload": ["runners.training.loop"]}
    layout = Layout(place / "c")
    (key,) = layout.trial_keys()
    change_record(place, job={"files": [], "entry": entry})
    request = _prepare(read_recorded(layout, key), tmp_path, None, lambda _: None)
    assert request["tree"] is not None
    assert (request["trial"], request["train"]) == (entry["trial"], entry["train"])


def test_a_damaged_snapshot_is_refused_and_nothing_is_run(place: Path, repro: Repro) -> None:
    (tar,) = Layout(place / "c").snapshots.iterdir()
    data = tar.read_bytes()
    tar.unlink()
    tar.write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
    done = repro(key="grid=mine seed=0")
    assert (done.returncode, done.stdout) == (6, "")
    assert "do not have the hash in its name" in done.stderr
    assert "training" not in done.stderr
    assert repro(key="f" * 32).returncode == 3
    assert "there are 0" in repro(key="seed=8").stderr


def test_a_trial_runs_again_as_it_ran_at_last(place: Path) -> None:
    layout = Layout(place / "c")
    (key,) = layout.trial_keys()
    start = read_json(layout.start(key, 1))
    assert read_recorded(layout, key).line()["spec"]["execution"]["device"] == "cpu"  # "auto" was written
    assert not read_recorded(layout, key).mixed
    layout.end(key, 1).rename(place / "end.json")
    shutil.copytree(layout.attempt(key, 1), layout.attempt(key, 2))
    second = {**start, "attempt": 2, "resumed_from": {"attempt": 1, "step": 2}, "accumulate": 2, "device": "cuda"}
    layout.start(key, 2).write_text(json.dumps(second))
    layout.end(key, 2).write_text(json.dumps({**read_json(place / "end.json"), "attempt": 2, "wall_s": 20.4}))
    layout.end(key, 1).write_text(json.dumps({**read_json(place / "end.json"), "wall_s": 100.0}))
    found = read_recorded(layout, key)
    assert found.took.startswith("2 attempts")
    assert "2 min 00 s" in found.took
    execution = found.line()["spec"]["execution"]
    assert (found.attempt, found.mixed, execution["device"], execution["accumulate"]) == (2, True, "cuda", 2)
    manifest = layout.manifest(start["submission"])
    line = parse_object(manifest.read_bytes(), "the manifest")
    line["spec"]["execution"]["micro_batch"] = 3
    manifest.write_text(json.dumps(line, separators=(",", ":")) + "\n")
    execution = read_recorded(layout, key).line()["spec"]["execution"]
    assert (execution["accumulate"], execution["micro_batch"]) == (2, None)
    Execution.model_validate(execution)


def test_every_bit_counts_and_nan_is_nan() -> None:
    loss = [ValueAddress("metric", step, "loss") for step in range(6)]
    before = dict(zip(loss, (math.nan, 0.0, 1.0, 2.0, 3.0, math.inf), strict=True))
    now = dict(zip(loss[:-1], (math.nan, -0.0, math.nextafter(1.0, 2), 2.5, math.nan), strict=True))
    found = differences(before, {**now, ValueAddress("probe", 0, "extra", 1, 2): 1.0})
    assert [each.where.kind for each in found] == ["probe", *["metric"] * 5]
    assert [each.where.step for each in found] == [0, 4, 5, 3, 2, 1]
    assert str(found[0].where) == "probe extra layer 1 head 2 at step 0"
    assert differences(before, before) == []
