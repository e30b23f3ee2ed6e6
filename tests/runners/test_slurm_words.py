"""Messages of `run --on slurm`: progress, refusals, and nothing to queue."""

from pathlib import Path

import pytest
from pretend_slurm import PretendSlurm, pretended

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


BUSY = "Unable to contact slurm controller (connect failure)"
FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("command", "text", "words"),
    [
        ("scontrol", f"slurm_load_ctl_conf error: {BUSY}", "contact"),
        ("test", f"{FAILED}{BUSY}", "be reached"),
        ("test", f"{FAILED}Invalid feature specification", "--constraint"),
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
    if command == "refuse_1":  # jobs that may be left count
        slurm.says(command, text)
        slurm.says("scancel", f"scancel: error: {BUSY}")
        assert run(tmp_path) == 5
        error = capsys.readouterr().err
        assert "may be queued" in error
        assert "nothing was queued" not in error


def test_options_are_always_checked(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    capsys.readouterr()
    assert run(tmp_path, "--mem", "2G") == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("nothing to do: all 6 missing trials are queued in submission ")
    assert "to change what workers ask for, run `ablate cancel`" in last
    for flags, words in [
        (("--mem", "999G"), "the largest node of partition debug has 64000 MiB of memory"),
        (("--partition", "dbug", "--dry-run"), "there is no partition 'dbug'"),
    ]:
        assert run(tmp_path, *flags) == 2
        output = capsys.readouterr()
        assert words in output.err
        assert "nothing to do" not in output.out + output.err
    assert list(slurm.jobs()) == [1]
    assert run(tmp_path, "--dry-run") == 0
    assert capsys.readouterr().out.startswith("nothing to do: all 6 missing trials are queued in submission ")
