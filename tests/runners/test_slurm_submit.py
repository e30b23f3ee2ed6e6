"""Submission: all jobs or none, limits, refusals and two shells at once."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pretend_slurm import PretendSlurm, pretended
from synthetic import write_start
from toy_campaign import run_quietly, toy_grid

from ablate.grid.errors import AblateError, EnvironmentProblem, SpecError
from ablate.runners.attempts.manifest import Manifest
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import read_submission_record
from ablate.runners.backends.backend import Submissions
from ablate.runners.backends.slurm.backend import SlurmBackend
from ablate.runners.backends.slurm.scheduler import SlurmScheduler as Scheduler
from ablate.runners.backends.slurm.spec import Needs, Slurm, read_budget
from ablate.runners.backends.slurm.submit.draft import Drafter
from ablate.runners.backends.slurm.submit.job_arrays import Arrays, Refused, in_words
from ablate.runners.backends.slurm.submit.submission_words import queued_line
from ablate.runners.backends.slurm.submit.submit import SubmittedJobs, submit as queue
from ablate.runners.cli.app import execute
from ablate.runners.provenance.specfile import load_spec_file
from ablate.store.files.layout import Layout

CPU = Slurm(gpus=0, time="1h", workers=2)
EARLIER = "20260101T000000-000000"
SPEC = """
from ablate import Slurm
from toy_campaign import toy_grid

grid = toy_grid()
slurm = Slurm(gpus=0, time="2h", workers=3, partition="debug", setup=("module load cuda",))
"""


@pytest.fixture
def command(tmp_path: Path, slurm: PretendSlurm) -> list[str]:
    (tmp_path / "toys.py").write_text(SPEC)
    return ["run", str(tmp_path / "toys.py"), "--campaign", str(tmp_path / "campaign"), "--on", "slurm"]


def drafter(root: Path, request: Slurm = CPU, *, grid: Any = None, **options: Any) -> Drafter:
    return Drafter(RunRequest(root, **options), [grid or toy_grid()], request, Scheduler())


def submit(root: Path, request: Slurm = CPU, **options: Any) -> SubmittedJobs:
    return queue(drafter(root, request, **options), lambda _: None)


def options_of(script: str) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH --")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def command_of(script: str) -> str:
    return next(line for line in script.splitlines() if line.startswith("srun"))


def test_a_dry_run_on_this_machine_is_the_plan(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["plan", *command[1:-2]]) == 0
    planned = capsys.readouterr().out
    assert execute([*command[:-2], "--dry-run"]) == 0
    assert capsys.readouterr().out == planned
    assert not (tmp_path / "campaign").exists()


def test_the_record_matches_what_sbatch_queued(tmp_path: Path, slurm: PretendSlurm, command: list[str]) -> None:
    (slurm.place / "last").write_text("41\n")
    (slurm.place / "banner").write_text("Maintenance: job 7 of the queue is not started\n")
    assert execute(command) == 0
    assert slurm.calls("sbatch") == ["--test-only --array=0-2"] * 2 + [""]
    assert sum(path.is_file() for path in (tmp_path / "campaign").rglob("*")) == 8
    layout = Layout(tmp_path / "campaign")
    record = read_submission_record(layout, layout.submission_ids()[0])
    assert (record.machine, record.jobs) == ("slurm", [42])
    assert slurm.jobs()[42].strip() == record.scripts["all"].strip()
    assert record.job["files"] == list(record.snapshot["spec"])
    assert record.environment is not None
    assert [(each.workers, each.rows) for each in record.classes] == [(3, (0, 6))]


def test_a_program_submits_what_the_spec_file_asks_for(tmp_path: Path, slurm: PretendSlurm, command: list[str]) -> None:
    path, notes = tmp_path / "toys.py", list[str]()
    request = RunRequest(tmp_path / "campaign", files=(path,), workers=2)
    grids = list(load_spec_file(path).values())
    record = SlurmBackend().submit(request, grids, notes.append).record
    assert record is not None
    assert (record.slurm["partition"], record.classes[0].workers, record.jobs) == ("debug", 2, [1])
    (status,), _ = Submissions().list(Layout(tmp_path / "campaign"))
    assert [worker.standing for worker in status.workers] == ["queued", "queued"]
    again = SlurmBackend().submit(request, grids, notes.append)
    assert (again.record, again.earlier) == (None, (record.submission,))


def test_the_script_says_what_was_asked(tmp_path: Path, slurm: PretendSlurm) -> None:
    request = Slurm(
        partition="gpu", account="lab", time="8h", gpus=2, gpu_type="h100", mem="16G", workers=2, per_gpu=2,
        signal_s=90, exclude="g7", constraint="ib", extra={"reservation": "course", "exclusive": ""},
        setup=("module load cuda",),
    )  # fmt: skip
    submit(tmp_path / "a campaign", request, grid=toy_grid(seeds=range(9)))
    script = slurm.jobs()[1]
    expected = {
        "partition": "gpu", "account": "lab", "time": "480", "gres": "gpu:h100:2", "mem": "16384M",
        "signal": "USR2@90", "exclude": "g7", "constraint": "ib", "reservation": "course", "exclusive": "",
        "requeue": "", "open-mode": "append", "cpus-per-task": "5", "array": "0-1%2", "ntasks": "1",
    }  # fmt: skip
    options = options_of(script)
    assert {name: options.get(name) for name in expected} == expected
    assert "wckey" not in options
    assert script.index("trap 'ablate_end") < script.index("module load cuda") < script.index("ablate_began=yes")
    assert "--cpus-per-task=5" in command_of(script)
    assert f"{sys.executable} -u -m ablate.runners.backends.slurm.node '{tmp_path}/a campaign' " in command_of(script)
    assert subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False).stderr == ""


def test_a_dry_run_writes_nothing_and_needs_no_cluster(
    tmp_path: Path,
    slurm: PretendSlurm,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute([*command, "--dry-run"]) == 0
    slurm.says("scontrol", "fatal: Could not establish a configuration source")
    for path in (slurm.path, str(Path(sys.executable).parent)):  # without a controller, then without SLURM
        monkeypatch.setenv("PATH", path)
        assert execute([*command, "--dry-run"]) == 0
        output = capsys.readouterr().out
        assert "#SBATCH --array=0-2%3\n" in output
        assert execute(command) == 5
    assert slurm.jobs() == {}
    assert not (tmp_path / "campaign").exists()


def test_a_queue_that_is_full_is_waited_for_for_a_while(
    tmp_path: Path, slurm: PretendSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    (slurm.place / "full").write_text("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n")
    monkeypatch.setattr("ablate.runners.backends.slurm.submit.job_arrays._PATIENCE_S", 0.5)
    with pytest.raises(EnvironmentProblem, match=r"MaxJobCount .* temporarily unable to accept job"):
        submit(tmp_path / "campaign")
    assert Layout(tmp_path / "campaign").submission_ids() == []


def test_every_row_belongs_to_one_class_and_classes_are_stretches(tmp_path: Path, slurm: PretendSlurm) -> None:
    rising = Needs(where={"operator": "rising"}, time="2h", mem="4G")
    record = submit(tmp_path / "campaign", CPU.changed(needs=(rising,), workers=4)).record
    manifest = Manifest(Layout(tmp_path / "campaign"), record.submission)
    for each in record.classes:
        labels = {manifest.line(row)["operator"] for row in range(*each.rows)}
        assert labels == ({"rising"} if each.name == "operator=rising" else {"falling"})
    assert sorted(row for each in record.classes for row in range(*each.rows)) == list(range(len(manifest)))
    scripts = slurm.jobs()
    assert sorted(options_of(each).get("mem", "") for each in scripts.values()) == ["", "4096M"]
    assert [command_of(scripts[job]).split()[-2] for job in (1, 2)] == ["0", "1"]


@pytest.mark.parametrize(("max_array", "expected"), [(1001, ["0-11%12"]), (5, ["0-3%4"] * 3), (1, [None] * 12)])
def test_arrays_are_as_large_as_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_array: int, expected: list[str | None]
) -> None:
    slurm = pretended(tmp_path, monkeypatch, max_array=max_array)
    submit(tmp_path / "campaign", CPU.changed(workers=12), grid=toy_grid(seeds=range(10)))
    scripts = list(slurm.jobs().values())
    assert [options_of(each).get("array") for each in scripts] == expected
    first_workers = sorted(int(command_of(each).split()[-1]) for each in scripts)
    assert first_workers == list(range(0, 12, 12 // len(expected)))


def test_a_full_queue_lowers_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = pretended(tmp_path, monkeypatch, room=4)
    queued = submit(tmp_path / "campaign", CPU.changed(workers=20), grid=toy_grid(seeds=range(10)))
    assert options_of(slurm.jobs()[1])["array"] == "0-3%4"
    assert any("4 workers and not 20" in note and "AssocMaxSubmitJobLimit" in note for note in queued.draft.notes)
    (slurm.place / "room").write_text("1")
    assert submit(tmp_path / "campaign", CPU, grid=toy_grid(seeds=range(10))).record is None  # nothing is left to queue
    with pytest.raises(EnvironmentProblem, match="AssocMaxSubmitJobLimit"):
        submit(tmp_path / "other", CPU)
    assert not (tmp_path / "other").exists()


@given(st.integers(1, 3000), st.integers(0, 3000))
def test_the_room_of_a_queue_is_found_in_few_questions(tasks: int, room: int) -> None:
    asked: list[int] = []

    def takes(script: str, *options: str) -> str:
        size = int(options[-1].removeprefix("--array=0-")) + 1
        asked.append(size)
        if size > room:
            raise Refused("sbatch: error: QOSMaxSubmitJobPerUserLimit")
        return ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablate.runners.backends.slurm.submit.job_arrays.sbatch", takes)
        patch.setattr("ablate.runners.backends.slurm.submit.job_arrays._require_readable", lambda _: None)
        found = Arrays(Layout(Path("/campaign")), EARLIER, CPU, [], single=False).room("", tasks)
    assert found.tasks == min(tasks, room)
    assert len(asked) <= 1 + math.ceil(math.log2(tasks + 1))
    assert (len(asked) == 1) == (room >= tasks or tasks == 1)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"partition": "short"}, r"short allows 5 min.*1 h 00 min"),
        ({"time": "3m"}, r"time=3 min holds no checkpoint: workers save 120 s .* every 90 s; raise time"),
        ({"needs": (Needs(where={"seed": 1}, mem="1G"),)}, r"take 'seed' out"),
    ],
)
def test_what_sbatch_would_take_and_never_train_is_refused_before_anything_is_written(
    tmp_path: Path, slurm: PretendSlurm, request_: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        submit(tmp_path / "campaign", CPU.changed(**request_), grid=toy_grid(checkpoint_s=90.0))
    assert not (tmp_path / "campaign").exists()
    assert slurm.calls("sbatch") == []


def test_notes_tell_what_may_surprise(tmp_path: Path, slurm: PretendSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    def notes(**fields: Any) -> str:
        return "\n".join(drafter(tmp_path / "campaign", CPU.changed(**fields)).draft().notes)

    assert "no trial matches Needs(where={'steps': 99})" in notes(needs=(Needs(where={"steps": 99}, mem="1G"),))
    for version, gpus in (("2.13.0+cpu", 1), ("2.13.0", 1), ("2.13.0+cpu", 0)):
        monkeypatch.setattr("ablate.runners.provenance.environment.version", lambda _, version=version: version)
        blind = "torch is a build for the CPU here" in notes(partition="gpu", gpus=gpus)
        assert blind == (gpus > 0 and version.endswith("cpu"))
    monkeypatch.setenv("SBATCH_GRES", "lab")
    monkeypatch.setenv("SBATCH_ACCOUNT", "lab")
    assert "SBATCH_GRES of the environment is not used" in notes()
    assert "SBATCH_ACCOUNT" not in notes()


def test_a_node_that_is_down_now_is_no_reason_to_refuse(tmp_path: Path, slurm: PretendSlurm) -> None:
    slurm.says("test", "allocation failure: Required node not available (down, drained or reserved)")
    assert submit(tmp_path / "campaign").record is not None


def test_trials_of_held_workers_and_cancelled_trials_are_queued_again(tmp_path: Path, slurm: PretendSlurm) -> None:
    root = tmp_path / "campaign"
    submit(root)
    slurm.hold(1, "launch_failed_requeued_held")
    queued = submit(root)
    assert queued.draft.trials == 6
    assert any("`scontrol release 1` lets them go" in note for note in queued.draft.notes)
    assert slurm.held_jobs() == [1]
    keys = [Manifest(Layout(root), queued.record.submission).line(row)["trial"] for row in (0, 1)]
    cancelled = Layout(root).submission(queued.record.submission) / "cancelled.json"
    cancelled.write_text(json.dumps({"schema": 1, "all": False, "trials": keys}))
    assert submit(root).draft.trials == 2


def test_the_second_submission_finds_everything_queued(tmp_path: Path, slurm: PretendSlurm) -> None:
    root, larger = tmp_path / "campaign", toy_grid(seeds=range(5))
    submit(root)
    second = submit(root)
    assert second.record is None
    assert "all 6 missing trials are queued in submission" in queued_line(second)
    slurm.says("squeue", "slurm_load_jobs error: Unable to contact slurm controller")
    with pytest.raises(EnvironmentProblem, match="could be queued twice"):
        submit(root)
    assert list(slurm.jobs()) == [1]
    slurm.works("squeue")
    third = submit(root, grid=larger)
    assert third.draft.trials == 4
    slurm.forget()
    assert submit(root, grid=larger).draft.trials == 10


def test_failed_trials_are_queued_when_asked_and_finished_ones_never(tmp_path: Path, slurm: PretendSlurm) -> None:
    root, grid = tmp_path / "campaign", toy_grid(fates=["ok", "raises"], seeds=(0, 1))
    run_quietly(root, grid)
    assert submit(root, grid=grid).draft.trials == 0
    chosen = frozenset(planned.key for planned in grid.trials() if planned.trial.fate == "raises" and planned.seed)
    assert drafter(root, grid=grid, retry=True, only=chosen).draft().trials == 2
    queued = submit(root, grid=grid, retry=True)
    assert (queued.draft.trials, queued.record.job["retry"]) == (4, True)
    assert submit(root, grid=grid, retry=True).record is None


def lose(layout: Layout, key: str, node: str) -> None:
    """The trial's attempt was on a node that is gone."""
    write_start(layout, key, 1, submission=EARLIER, host=node, pid=1, started=1.0, place={"node": node})
    os.utime(layout.heartbeat(key, 1), (1.0, 1.0))


def test_nodes_that_lost_trials_are_avoided_unless_they_are_half_of_all(tmp_path: Path, slurm: PretendSlurm) -> None:
    root = tmp_path / "campaign"
    gpu = CPU.changed(partition="gpu", exclude="g9")  # four nodes
    keys = [trial.key for trial in drafter(root, gpu).worklist.trials]
    lose(Layout(root), keys[0], "g1")
    draft = drafter(root, gpu).draft()
    assert options_of(draft.scripts["all"])["exclude"] == "g9,g1"
    assert draft.notes[0] == "trials were lost on g1 (1); no worker is sent there this time"
    record = submit(root, gpu).record
    assert Slurm.model_validate(record.slurm) == gpu  # a node that lost one trial is not avoided for ever
    slurm.forget()
    lose(Layout(root), keys[1], "g2")
    draft = drafter(root, gpu).draft()
    assert options_of(draft.scripts["all"])["exclude"] == "g9"
    assert "too many nodes" in draft.notes[0]


def test_a_budget_counts_what_workers_have(tmp_path: Path, slurm: PretendSlurm) -> None:
    mixed = Slurm(partition="gpu", gpus=1, needs=(Needs(where={"operator": "rising"}, gpus=0),))
    with pytest.raises(SpecError, match=r"workers of operator=rising have none; .* --budget 200cpuh"):
        submit(tmp_path / "campaign", mixed, budget=read_budget("200gpuh"))
    assert not (tmp_path / "campaign").exists()
    record = submit(tmp_path / "campaign", mixed, budget=read_budget("200cpuh")).record
    assert record.budget == {"hours": 200.0, "unit": "cpuh"}


def test_of_several_partitions_one_must_do(tmp_path: Path, slurm: PretendSlurm) -> None:
    both = CPU.changed(partition="short,gpu", time="1h")
    text = drafter(tmp_path / "campaign", both).draft().scripts["all"]
    assert "#SBATCH --partition=short,gpu\n" in text
    assert "\nablate_partitions=short,gpu\n" in text
    with pytest.raises(SpecError, match=r"short allows 5 min.*gpu allows 2 d"):
        drafter(tmp_path / "campaign", both.changed(time="3d")).draft()


def test_options_replace_what_the_file_says(slurm: PretendSlurm, command: list[str]) -> None:
    assert execute([*command, "--time", "30m", "--workers", "2", "--setup", "export A=1", "--setup", "export B=2"]) == 0
    script = slurm.jobs()[1]
    options = options_of(script)
    assert (options["time"], options["array"], options["partition"]) == ("30", "0-1%2", "debug")
    assert "export A=1\nexport B=2\n" in script
    assert "module load cuda" not in script


def test_without_gpus_there_is_no_type_of_them(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "toys.py").write_text(SPEC.replace("gpus=0, ", "gpus=2, gpu_type='h100', ").replace('"debug"', '"gpu"'))
    assert execute([*command, "--dry-run", "--gpus", "0"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("local --partition gpu", "--partition has no effect with --on local"),
        ("local --wait", "--wait has no effect"),
        ("slurm --time 5minutes", "'5minutes' is no time limit"),
        ("slurm --mem lots", "'lots' is no memory"),
        ("slurm --budget 200", "the budget '200'"),
        ("slurm --workers 0", "workers"),
        ("slurm --per-gpu many", "per-gpu"),
        ("slurm", "slurm, other are several Slurm"),
    ],
)
def test_wrong_use_is_one_sentence(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str], arguments: str, words: str
) -> None:
    if arguments == "slurm":
        (tmp_path / "toys.py").write_text(f"{SPEC}\nother = Slurm(gpus=0)\n_third = Slurm(gpus=2)\nsame = slurm\n")
    assert execute([*command[:-1], *arguments.split()]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert words in line
    assert not (tmp_path / "campaign").exists()


def test_submitting_in_a_job_forgets_it(tmp_path: Path, slurm: PretendSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"SLURM_JOB_ID": "77", "SLURM_CPUS_PER_TASK": "3", "SLURM_CONF": "/there", "SBATCH_PARTITION": "gpu"}
    for name, value in {**variables, "SBATCH_TIMELIMIT": "1"}.items():
        monkeypatch.setenv(name, value)
    submit(tmp_path / "campaign")
    environment = (slurm.place / "env").read_text()
    assert not any(name in environment for name in ("SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "SBATCH_"))
    assert "SLURM_CONF=/there" in environment
    assert "#SBATCH --partition=gpu\n" in slurm.jobs()[1]
    assert os.environ["SLURM_JOB_ID"] == "77"


def test_without_slurm_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match=r"sbatch is not among .* --on slurm runs on a login node"):
        submit(tmp_path / "campaign")


FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (f"{FAILED}Invalid account or account/partition combination specified", SpecError, "account"),
        (f"sbatch: error: AssocMaxSubmitJobLimit\n{FAILED}Job violates policy", EnvironmentProblem, "jobs"),
        ("sbatch: error: Invalid generic resource (gres) specification", SpecError, "GPUs"),
        ("sbatch: fatal: Could not establish a configuration source", EnvironmentProblem, "reached"),
        ("sbatch: error: the site says hello", EnvironmentProblem, "the site says hello"),
        ("", EnvironmentProblem, "did not say why"),
    ],
)
def test_messages_of_sbatch_become_one_sentence(said: str, kind: type[AblateError], words: str) -> None:
    error = in_words(said)
    assert type(error) is kind
    assert words in str(error)
    assert "\n" not in str(error)
    assert FAILED not in str(error)
