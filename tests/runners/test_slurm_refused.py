"""Submissions that could never train are refused: too little time, no GPU, invalid set-up."""

from pathlib import Path
from typing import Any

import pytest
from pretend_slurm import PretendSlurm, pretended
from real_spec import real_spec
from toy_campaign import toy_grid

from ablate.grid.errors import SpecError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.backends.slurm.scheduler import SlurmScheduler as Scheduler
from ablate.runners.backends.slurm.spec import Slurm
from ablate.runners.backends.slurm.submit import resource_classes
from ablate.runners.backends.slurm.submit.cluster_checks import warn_if_not_shared
from ablate.runners.backends.slurm.submit.draft import Draft, Drafter
from ablate.runners.backends.slurm.submit.resource_classes import START_S
from ablate.runners.cli.app import execute

SPEC = """
from ablate import Slurm
from toy_campaign import toy_grid

grid = toy_grid()
slurm = Slurm(gpus=0, time="2h", workers=3, partition="debug")
"""
BUSY = "Unable to contact slurm controller (connect failure)"
FAILED = "sbatch: error: Batch job submission failed: "


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendSlurm:
    (tmp_path / "spec.py").write_text(SPEC)
    return pretended(tmp_path, monkeypatch)


def draft(tmp_path: Path, **asked: Any) -> Draft:
    request = Slurm(**{"gpus": 0, "workers": 1, **asked})
    return Drafter(RunRequest(tmp_path / "campaign"), [toy_grid()], request, Scheduler()).draft()


def run(tmp_path: Path, *words: str) -> int:
    return execute(
        ["run", str(tmp_path / "spec.py"), "--campaign", str(tmp_path / "campaign"), "--on", "slurm", *words]
    )


def test_a_time_limit_holds_a_start_and_a_checkpoint(tmp_path: Path, slurm: PretendSlurm) -> None:
    """The toys save every 20 s."""
    most = 120 - int(START_S) - 20
    for signal_s in (118, most + 1):
        with pytest.raises(SpecError, match=rf"2 min .* {signal_s} s .* {120 - signal_s} s, .*15 s"):
            draft(tmp_path, time="2m", signal_s=signal_s)
    assert draft(tmp_path, time="2m", signal_s=most).trials == 6


def test_unreadable_set_up_is_refused(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.py").write_text(real_spec("g", training="steps=4"))
    assert run(tmp_path, "--gpus", "0", "--setup", "if then") == 2
    *progress, said = capsys.readouterr().err.strip().splitlines()
    assert said.startswith("ablate: the lines of setup are no shell that bash can read (syntax error near unexpected")
    assert all(line.endswith(" ...") for line in progress)  # said where packing takes long
    assert not (tmp_path / "campaign").exists()
    assert slurm.calls("sbatch") == []
    assert draft(tmp_path, setup=("if true; then export A=1; fi",)).trials == 6


@pytest.mark.parametrize(("cpu_build", "gpus", "code"), [(True, "1", 2), (True, "0", 2), (False, "0", 0)])
def test_trials_for_cuda_alone_are_not_sent_where_there_is_none(
    tmp_path: Path, slurm: PretendSlurm, monkeypatch: pytest.MonkeyPatch, cpu_build: bool, gpus: str, code: int
) -> None:
    spec = real_spec("g", training="steps=4").replace('device="cpu"', 'device="cuda"')
    (tmp_path / "spec.py").write_text(spec)
    monkeypatch.setattr(resource_classes, "torch_without_cuda", lambda: cpu_build)
    assert run(tmp_path, "--gpus", gpus, "--partition", "gpu") == code
    assert bool(slurm.calls("sbatch")) == (code == 0)


def test_nodes_left_out_may_be_blamed(tmp_path: Path, slurm: PretendSlurm) -> None:
    slurm.says("test", f"{FAILED}Requested node configuration is not available")
    blamed = {"n1,n2": "--exclude n1,n2 leaves no node to train on", "n2": "no node that --exclude n2 leaves has"}
    for exclude, words in {**blamed, None: "no node of the partition has that many GPUs"}.items():
        with pytest.raises(SpecError, match=words):
            draft(tmp_path, exclude=exclude)


def test_a_campaign_that_nodes_do_not_see_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warn_if_not_shared(Path("/tmpfoo")) is None
    assert "/tmp is on a disk of this machine" in str(warn_if_not_shared(Path("/tmp/campaign")))
    monkeypatch.setattr(Path, "is_mount", lambda path: path == Path("/tmp/shared"))
    assert warn_if_not_shared(Path("/tmp/shared/campaign")) is None


@pytest.mark.parametrize(
    ("command", "text", "words"),
    [
        ("scontrol", f"slurm_load_ctl_conf error: {BUSY}", "contact"),
        ("test", f"{FAILED}{BUSY}", "be reached"),
        ("refuse_1", f"{FAILED}Invalid qos specification", "the qos is not"),
    ],
)
def test_a_refusal_says_that_nothing_was_queued(
    tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str], command: str, text: str, words: str
) -> None:
    slurm.says(command, text)
    assert run(tmp_path) in (2, 5)
    error = capsys.readouterr().err
    assert words in error
    assert error.endswith("; nothing was queued\n")
    assert slurm.jobs() == {}


def test_options_are_always_checked(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    capsys.readouterr()
    assert run(tmp_path, "--mem", "2G") == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("nothing to do: all 6 missing trials are queued in submission ")
    slurm.says("test", f"{FAILED}Requested node configuration is not available")
    assert run(tmp_path, "--mem", "999G") == 2
    slurm.works("test")
    assert list(slurm.jobs()) == [1]
    assert run(tmp_path, "--dry-run") == 0
