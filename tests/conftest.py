"""Keep the definitions of a test inside the test, and compute on one thread in every process."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from definitions import forgotten
from hypothesis import settings

import ablate.variants.laws.examples  # noqa: F401  # all that the package defines is there before the first test
from ablate.runners import output

# `python -m pytest` puts the root of the repository there, where the folders would be packages of their own
sys.path[:] = [each for each in sys.path if Path(each).resolve() != Path(__file__).parent.parent]
# tensors here are tiny, and threads that wait for one another on busy cores took ten times as long as one thread
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRITON_INTERPRET", "1")  # counts when triton is imported
os.environ.pop("COLUMNS", None)  # xdist sets it; tables are as wide in every process
# a shell starts background jobs with SIGINT ignored, and so would every process that a test starts and interrupts
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

_STATE = tempfile.TemporaryDirectory(prefix="ablate-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name


@pytest.fixture(autouse=True)
def _definitions_stay_in_their_test() -> Iterator[None]:
    with forgotten():
        yield


def pytest_collection_finish() -> None:
    """Keep what is imported out of every later collection of garbage, and notices of slow parts out of the tests."""
    output.SLOW_AFTER_S = 600.0  # a busy machine is slow in every part of a command
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()
