"""Names of release 0.1, whose packages `grid`, `variants`, ... are now below `ablate`, in records and in spec files."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_node import end_of, send

from ablate.grid import Grid
from ablate.runners.attempts.submission_record import read_submission_record, write_submission_record
from ablate.runners.execution.repro import _run
from ablate.runners.provenance import specfile
from ablate.runners.provenance.earlier_names import ROOMS
from ablate.runners.provenance.source import digest, statements
from ablate.runners.provenance.specfile import load_spec_file
from ablate.store.files.trial_state import trial_state
from ablate.training.trial import Trial

NOW, BEFORE = "ablate.", ""
SPEC = """
import {at}grid.errors
from {at}runners import AdamW, LinearFunctions, Training, Trial
from {at}variants.papers.catalogue import catalogue
from {at}grid import Grid, over
import {at}dashboards, {at}store
import {at}variants as v

assert len(catalogue()) > 40
training = Training(steps=2, optimiser=AdamW(lr=0.1))
base = Trial(task=LinearFunctions(), model=v.gpt2(layers=1, heads=1, width=8), operator=v.softmax(), training=training)
grid = Grid(name="g", base=base, axes=[over("operator", [v.softmax(), v.ssa()])], seeds=range(2))
"""


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("path", "meta_path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setattr(specfile, "SPEC_FOLDERS", [])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ROOMS]:
        del sys.modules[name]


def test_a_job_that_an_earlier_release_queued_trains(tmp_path: Path, tiny: Trial) -> None:
    sent = send(tmp_path, Grid(name="g", base=tiny, seeds=[0]))
    record = read_submission_record(sent.layout, sent.submission)
    entry = {"trial": "runners.trial:Trial", "train": "runners.training:train", "preload": ["runners.training.loop"]}
    job = {**{name: value for name, value in record.job.items() if name != "preload"}, "entry": entry}
    write_submission_record(sent.layout, replace(record, job=job))
    status, out, err = end_of(sent.start())
    assert status == 0, f"{out}\n{err}"
    assert [trial_state(sent.layout, key).state for key in sent.layout.trial_keys()] == ["done"]


def test_a_spec_file_of_before_is_the_same_grid(tmp_path: Path) -> None:
    (tmp_path / "grid").mkdir()  # a folder of data
    keys = []
    for at in (BEFORE, NOW):
        (tmp_path / "spec.py").write_text(SPEC.format(at=at))
        grid = load_spec_file(tmp_path / "spec.py")["g"]
        assert type(grid) is Grid
        keys.append([planned.key for planned in grid.trials()])
    assert keys[0] == keys[1]


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("below", ["", ".inner", ".deep.inner"])
def test_a_user_s_module_is_found_first_also_after_a_spec_file_of_before(room: str, below: str, tmp_path: Path) -> None:
    for folder, text in (
        ("before", SPEC.format(at=BEFORE)),
        ("now", f"from {room}{below} import place\n{SPEC.format(at=NOW)}"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "spec.py").write_text(text)
    file = tmp_path / "now" / f"{room}{below.replace('.', '/')}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("place = __file__\n")
    load_spec_file(tmp_path / "before" / "spec.py")
    assert sys.modules[room] is sys.modules[f"ablate.{room}"]
    load_spec_file(tmp_path / "now" / "spec.py")
    assert sys.modules[f"{room}{below}"].place == str(file)
    load_spec_file(tmp_path / "before" / "spec.py")
    assert sys.modules[room] is sys.modules[f"ablate.{room}"]


def test_the_hash_of_a_class_is_the_same_under_both_names() -> None:
    hashes = {digest(statements(SPEC.format(at=at))) for at in (BEFORE, NOW)}
    assert len(hashes) == 1
    assert digest(statements("from ablate.grid import over")) not in {digest(statements("from own.grid import over"))}


def test_a_tree_of_before_is_run_by_its_own_name(tmp_path: Path) -> None:
    program = tmp_path / "tree" / "code" / "runners" / "rerun.py"
    program.parent.mkdir(parents=True)
    program.write_text(f"import sys; open({str(tmp_path / 'asked')!r}, 'w').write(sys.argv[1])\n")
    variables = {**os.environ, "PYTHONPATH": str(tmp_path / "tree" / "code")}
    _run({"tree": str(tmp_path / "tree"), "trial": "runners.trial:Trial"}, variables)
    assert '"runners.trial:Trial"' in (tmp_path / "asked").read_text()
