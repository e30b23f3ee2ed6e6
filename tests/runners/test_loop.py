"""A worker whose starter was killed leaves at once and without a word: nothing it did is wrong."""

import subprocess
import sys

import pytest
import torch
from warm import Warm

from ablate.runners.execution.worker_loop import TENSORS_OF_DEVICE, _limit_memory

ORPHAN = """
from multiprocessing.connection import Pipe
from ablate.runners.execution.worker_loop import _Control, work
ours, theirs = Pipe()
{before}
ours.close()
control = _Control(theirs)
{doing}
raise SystemExit("goes on")
"""
UNHEARD = "theirs.send('not heard'); ours.send(('row', 1))"


@pytest.mark.parametrize(
    ("before", "doing"),
    [
        ("", "control.row_started(0, 1, 0)"),
        ("", "work(theirs)"),
        (UNHEARD, "control.next(); control.next()"),
    ],
)
def test_a_worker_that_nobody_listens_to_leaves_without_a_word(before: str, doing: str) -> None:
    script = ORPHAN.format(before=before, doing=doing)
    pipe = subprocess.PIPE
    with Warm([sys.executable, "-P", "-c", script], stdout=pipe, stderr=pipe, text=True) as worker:
        assert worker.communicate() == ("", "")
    assert worker.returncode == 1


def test_workers_that_share_a_device_have_equal_parts_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limits.append)
    for share in (1.0, 0.5, 0.25):
        _limit_memory(share)
    assert limits == [TENSORS_OF_DEVICE / 2, TENSORS_OF_DEVICE / 4]  # one alone has all there is
