"""Backends are found by their entry points, and monitoring knows their protocol alone."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest
from pretend_slurm import PretendSlurm
from slurm_node import TESTS, send
from toy_campaign import toy_grid

import ablate
from ablate.grid import Grid
from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import read_submission_record
from ablate.runners.attempts.worker_records import read_cancelled
from ablate.runners.backends.backend import Queued, find_backend
from ablate.runners.backends.slurm.backend import SlurmBackend
from ablate.runners.cli.app import execute
from ablate.runners.slurm import spec as earlier_spec
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state

SPEC = "from toy_campaign import toy_grid\ngrid = toy_grid()\n"
BACKEND = '''
"""A backend that queues one worker and never starts it; the file `queue` is its queue."""

from dataclasses import replace
from pathlib import Path

from ablate.runners.attempts.manifest import submission_id, write_submission
from ablate.runners.attempts.submission_record import (
    ResourceClass, new_record, write_submission_record,
)
from ablate.runners.attempts.worker_records import read_cancelled
from ablate.runners.backends.backend import Backend, Queued, SubmissionStatus, WorkerStatus
from ablate.runners.planning.prepared_run import PreparedRun

QUEUE = Path(__file__).with_name("queue")


class Shelf(Backend):
    def submit(self, request, grids, notify):
        prepared = PreparedRun(request, grids, lambda *_: None)
        worklist = prepared.publish()
        job = replace(prepared.request, submission=submission_id())
        write_submission(prepared.layout, job.submission, worklist.lines(worklist.to_do))
        classes = (ResourceClass("all", (0, len(worklist.to_do)), {}, request.workers or 1),)
        record = replace(new_record(job, "shelf", None), classes=classes)
        write_submission_record(prepared.layout, record)
        QUEUE.write_text(job.submission)
        return Queued(record, worklist, f"queued {record.submission}")

    def list(self, layout, records, max_age_s):
        waits = QUEUE.read_text().split() if QUEUE.exists() else []
        return [SubmissionStatus(each, read_cancelled(layout, each.submission), self._workers(each, waits), ())
                for each in records], []

    def _workers(self, record, waits):
        standing = "queued" if record.submission in waits else "lost"
        return tuple(WorkerStatus(record.submission, "all", number, standing, str(number), None, "", None, 0, None,
                                  record.written, 0, 0) for number in range(record.classes[0].workers))

    def cancel(self, found):
        QUEUE.write_text("")
'''


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of somebody else with a backend is installed."""
    place = tmp_path / "site"
    (place / "shelf-1.dist-info").mkdir(parents=True)
    (place / "shelf-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1\n")
    (place / "shelf-1.dist-info" / "entry_points.txt").write_text("[ablate.backends]\nshelf = shelf_backend:Shelf\n")
    (place / "shelf_backend.py").write_text(BACKEND)
    monkeypatch.syspath_prepend(place)
    monkeypatch.delitem(sys.modules, "shelf_backend", raising=False)  # that of another test
    return place


def test_a_backend_of_another_package_is_submitted_to_monitored_and_cancelled(
    tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # there is no SLURM
    (tmp_path / "toys.py").write_text(SPEC)
    campaign = ["--campaign", str(tmp_path / "c")]
    assert execute(["run", str(tmp_path / "toys.py"), "--on", "shelf", "--workers", "2", *campaign]) == 0
    layout = Layout(tmp_path / "c")
    (submission,) = layout.submission_ids()
    assert read_submission_record(layout, submission).machine == "shelf"
    capsys.readouterr()

    def status() -> dict[str, object]:
        assert execute(["status", "--json", *campaign]) == 0
        data = json.loads(capsys.readouterr().out)["data"]
        return {
            "standings": [each["standing"] for each in data["workers"]],
            "states": {each["state"] for each in data["trials"].values()},
        }

    assert status() == {"standings": ["queued", "queued"], "states": {"queued"}}
    assert execute(["cancel", *campaign]) == 0
    assert read_cancelled(layout, submission).all
    assert (shelf / "queue").read_text() == ""
    capsys.readouterr()
    assert status()["states"] == {"pending"}
    assert execute(["retry", "operator=rising", *campaign]) == 0  # where they were queued the last time
    assert [read_submission_record(layout, each).machine for each in layout.submission_ids()] == ["shelf", "shelf"]
    # the package was damaged, or is not installed here, or has a fault
    for text in ("import not_there", "1 / 0", BACKEND.replace("waits = ", "waits = None + ")):
        (shelf / "shelf_backend.py").write_text(text)
        sys.modules.pop("shelf_backend", None)
        capsys.readouterr()
        assert execute(["status", "--json", *campaign]) == 0
        said = json.loads(capsys.readouterr().out)
        assert [any(each in note for note in said["warnings"]) for each in layout.submission_ids()] == [True, True]


def test_a_run_waits_for_workers_of_any_backend_and_a_dry_run_queues_nothing(
    tmp_path: Path, shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worker is lost at once, so no trial is trained; this backend cannot describe what it would queue."""
    gone = BACKEND.replace("QUEUE.write_text(job.submission)", "QUEUE.write_text('')")
    (shelf / "shelf_backend.py").write_text(gone)
    sys.modules.pop("shelf_backend", None)
    (tmp_path / "toys.py").write_text(SPEC)
    command = ["run", str(tmp_path / "toys.py"), "--campaign", str(tmp_path / "c"), "--on", "shelf"]
    assert execute([*command, "--dry-run"]) == 2
    assert "--dry-run" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
    assert execute([*command, "--wait"]) == 4
    assert "6 not finished" in capsys.readouterr().err


def test_run_and_retry_submit_to_slurm_through_the_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: PretendSlurm
) -> None:
    def submit(self: SlurmBackend, request: RunRequest, grids: Sequence[Grid], notify: Callable) -> Queued:
        requests.append(request)
        return plain(self, request, grids, notify)

    requests, plain = list[RunRequest](), SlurmBackend.submit
    monkeypatch.setattr(SlurmBackend, "submit", submit)
    (tmp_path / "toys.py").write_text(SPEC)
    campaign = ["--campaign", str(tmp_path / "c")]
    asked = ["--on", "slurm", "--gpus", "0", "--time", "1h"]
    assert execute(["run", str(tmp_path / "toys.py"), *campaign, *asked, "--workers", "2"]) == 0
    assert execute(["cancel", *campaign]) == 0
    slurm.forget()
    assert execute(["retry", "operator=rising", *campaign, "--partition", "debug"]) == 0
    layout = Layout(tmp_path / "c")
    records = [read_submission_record(layout, each) for each in layout.submission_ids()]
    assert [request.cluster.data() for request in requests] == [record.slurm for record in records]
    assert [(each.slurm["workers"], each.slurm["partition"]) for each in records] == [(2, None), (2, "debug")]


def test_a_machine_that_is_not_there_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "toys.py").write_text(SPEC)
    command = ["run", str(tmp_path / "toys.py"), "--campaign", str(tmp_path / "c"), "--on", "moon"]
    assert execute(command) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "'moon'" in line
    assert not (tmp_path / "c").exists()
    with pytest.raises(EnvironmentProblem, match="'moon'"):
        find_backend("moon")


def test_slurm_is_a_backend_also_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the snapshot of a submission, which nobody installed."""
    monkeypatch.setattr("ablate.grid.plugins.entry_points", lambda **_: EntryPoints())
    assert isinstance(find_backend("slurm"), SlurmBackend)


def test_names_of_before_the_move_are_the_same_classes_and_the_program_of_queued_jobs(tmp_path: Path) -> None:
    """The job names `ablate.runners.slurm.node`; its record has the fields of release 0.1."""
    assert earlier_spec.Slurm is ablate.Slurm
    sent = send(tmp_path, toy_grid(seeds=[0]), job={"specs": [], "seen": "a field of that release"})
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "CUDA"))},
        "PYTHONPATH": f"{TESTS.parent}/src:{TESTS}", "SLURM_JOB_ID": "100", "SLURMD_NODENAME": "n0",
    }  # fmt: skip
    command = ["-u", "-P", "-m", "ablate.runners.slurm.node", str(tmp_path), sent.submission, "0", "0"]
    done = subprocess.run([sys.executable, *command], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [trial_state(sent.layout, key).state for key in sent.layout.trial_keys()] == ["done", "done"]
