"""Messages of `run --on slurm`: progress, refusals, and nothing to queue."""

from pathlib import Path

import pytest
from pretend_slurm import PretendSlurm, pretended

from runners import slow_notice
from runners.cli.app import execute

SPEC = """
from runners import Slurm
from toy_campaign import toy_grid

grid = toy_grid()
slurm = Slurm(gpus=0, time="2h", workers=3, partition="debug")
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendSlurm:
    made = pretended(tmp_path, monkeypatch)
    (tmp_path / "toys.py").write_text(SPEC)
    return made


def run(tmp_path: Path, *flags: str) -> int:
    return execute(["run", str(tmp_path / "toys.py"), "--on", "slurm", "--campaign", str(tmp_path / "c"), *flags])


class Impatient:
    """A timer whose time has always come."""

    daemon = False

    def __init__(self, _: float, fire: object) -> None:
        self.start = fire

    def cancel(self) -> None:
        pass


def test_every_part_that_lasts_is_named_in_order(
    tmp_path: Path, slurm: PretendSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slow_notice, "Timer", Impatient)
    assert run(tmp_path) == 0
    *said, last = capsys.readouterr().err.splitlines()
    parts = [line for line in said if "nodes may not see" not in line]
    assert parts == [
        f"loading {tmp_path / 'toys.py'} ...",
        "asking the cluster what it allows ...",
        "planning: looking at every cell ...",
        "planning 6 trials ...",
        "packing the snapshot: the tree that is submitted ...",
        "asking the cluster whether it takes the workers, and queueing them ...",
    ]
    assert last.startswith("queued 6 trials")


@pytest.mark.parametrize(
    ("command", "text", "words"),
    [
        ("scontrol", "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)", "contact"),
        ("test", "sbatch: error: Batch job submission failed: Unable to contact slurm controller", "be reached"),
        ("test", "sbatch: error: Batch job submission failed: Invalid feature specification", "--constraint"),
        ("refuse_1", "sbatch: error: Batch job submission failed: Invalid qos specification", "the qos is not"),
    ],
)
def test_a_refusal_says_that_nothing_was_queued(
    tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str], command: str, text: str, words: str
) -> None:
    slurm.says(command, text)
    assert run(tmp_path) in (2, 5)
    said = capsys.readouterr().err
    assert words in said
    assert said.endswith("; nothing was queued\n")
    assert slurm.jobs() == {}


def test_jobs_that_may_be_left_count(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.says("refuse_1", "sbatch: error: Batch job submission failed: Invalid qos specification")
    slurm.says("scancel", "scancel: error: Unable to contact slurm controller")
    assert run(tmp_path) == 5
    said = capsys.readouterr().err
    assert "may be queued" in said
    assert "nothing was queued" not in said


def test_options_are_always_checked(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    capsys.readouterr()
    assert run(tmp_path, "--mem", "2G") == 0
    said = capsys.readouterr().err
    assert said.splitlines()[-1].startswith("nothing to do: all 6 missing trials are queued in submission ")
    assert (
        "; to change what workers ask for, run `ablate cancel` (running trials save), then this command again" in said
    )
    for flags, words in [
        (("--mem", "999G"), "the largest node of partition debug has 64000 MiB of memory"),
        (("--partition", "dbug"), "there is no partition 'dbug'"),
        (("--time", "3m", "--partition", "gpu", "--gpus", "9"), "has 8 GPUs, and a worker is to have 9"),
    ]:
        for dry in ((), ("--dry-run",)):
            assert run(tmp_path, *flags, *dry) == 2
            said = capsys.readouterr()
            assert words in said.err
            assert "nothing to do" not in said.out + said.err
    assert list(slurm.jobs()) == [1]
    assert run(tmp_path, "--dry-run") == 0
    assert capsys.readouterr().out.startswith("nothing to do: all 6 missing trials are queued in submission ")


def test_all_cores_are_not_too_many(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "toys.py").write_text(SPEC.replace("gpus=0", "gpus=0, per_gpu=8"))
    assert run(tmp_path) == 0
    assert run(tmp_path, "--mem", "2G") == 0
    assert "nothing to do" in capsys.readouterr().err
