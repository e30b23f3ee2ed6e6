"""Submissions that could never train are refused: too little time, no GPU, invalid set-up."""

from pathlib import Path
from typing import Any

import pytest
from pretend_slurm import PretendSlurm
from real_spec import real_spec
from toy_campaign import toy_grid
from toy_training import ENTRY

from grid.errors import SpecError
from runners.cli.app import execute
from runners.slurm.scheduler import SlurmScheduler as Scheduler
from runners.slurm.spec import Slurm
from runners.slurm.submit import resource_classes
from runners.slurm.submit.cluster_checks import warn_if_not_shared
from runners.slurm.submit.resource_classes import START_S
from runners.slurm.submit.submit import Draft, Drafter, SubmitOptions

NOT_AVAILABLE = "sbatch: error: Batch job submission failed: Requested node configuration is not available"


def draft(root: Path, **asked: Any) -> Draft:
    request = Slurm(**{"gpus": 0, "workers": 1, **asked})
    return Drafter(root, [toy_grid()], request, Scheduler(), SubmitOptions(entry=ENTRY)).draft()


def run(tmp_path: Path, *words: str) -> int:
    return execute(
        ["run", str(tmp_path / "spec.py"), "--campaign", str(tmp_path / "campaign"), "--on", "slurm", *words]
    )


def test_a_time_limit_holds_a_start_and_a_checkpoint(tmp_path: Path, slurm: PretendSlurm) -> None:
    """The toys save every 20 s."""
    most = 120 - int(START_S) - 20
    for signal_s in (118, most + 1):
        with pytest.raises(
            SpecError, match=rf"2 min and save {signal_s} s before .* leaves {120 - signal_s} s, .*15 s"
        ):
            draft(tmp_path / "campaign", time="2m", signal_s=signal_s)
    assert draft(tmp_path / "campaign", time="2m", signal_s=most).trials == 6


def test_unreadable_set_up_is_refused(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.py").write_text(real_spec("g", training="steps=4"))
    assert run(tmp_path, "--gpus", "0", "--setup", "if then") == 2
    *progress, said = capsys.readouterr().err.strip().splitlines()
    assert said.startswith("ablate: the lines of setup are no shell that bash can read (syntax error near unexpected")
    assert all(line.endswith(" ...") for line in progress)  # said where packing takes long
    assert not (tmp_path / "campaign").exists()
    assert slurm.calls("sbatch") == []
    assert draft(tmp_path / "campaign", setup=("if true; then export A=1; fi",)).trials == 6


@pytest.mark.parametrize("case", [(True, "1", 2), (True, "0", 2), (False, "0", 0)])
def test_trials_for_cuda_alone_are_not_sent_where_there_is_none(
    tmp_path: Path,
    slurm: PretendSlurm,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: tuple[bool, str, int],
) -> None:
    cpu_build, gpus, code = case
    spec = real_spec("g", training="steps=4").replace('device="cpu"', 'device="cuda"')
    (tmp_path / "spec.py").write_text(spec)
    monkeypatch.setattr(resource_classes, "torch_without_cuda", lambda: cpu_build)
    assert run(tmp_path, "--gpus", gpus, "--partition", "gpu") == code
    said = capsys.readouterr().err
    if code:
        assert "execution.device is 'cuda' in 6 trials and torch is a build for the CPU here" in said
        assert slurm.calls("sbatch") == []
    else:
        assert "execution.device is 'cuda' and workers ask for no GPU, so that nodes may refuse them" in said


@pytest.mark.parametrize(
    ("exclude", "words"),
    [
        ("n1,n2", "--exclude n1,n2 leaves no node to train on; exclude fewer"),
        ("n2", "no node that --exclude n2 leaves has that many GPUs"),
        (None, "no node of the partition has that many GPUs"),
    ],
)
def test_nodes_left_out_may_be_blamed(tmp_path: Path, slurm: PretendSlurm, exclude: str | None, words: str) -> None:
    slurm.says("test", NOT_AVAILABLE)
    with pytest.raises(SpecError) as refused:
        draft(tmp_path / "campaign", exclude=exclude)
    assert words in str(refused.value)
    assert str(refused.value).endswith("(sbatch: Requested node configuration is not available)")


def test_a_campaign_that_nodes_do_not_see_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warn_if_not_shared(Path("/tmpfoo")) is None
    assert "/tmp is on a disk of this machine" in str(warn_if_not_shared(Path("/tmp/campaign")))
    monkeypatch.setattr(Path, "is_mount", lambda path: path == Path("/tmp/shared"))
    assert warn_if_not_shared(Path("/tmp/shared/campaign")) is None
