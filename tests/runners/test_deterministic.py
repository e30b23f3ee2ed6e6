"""Deterministic training: what has no deterministic algorithm is an error, and no setting outlasts the trial."""

import contextlib
import os
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from batch_in_parts import numbers
from torch import Tensor
from torch.backends import cudnn

from ablate.grid.errors import EnvironmentProblem
from ablate.training.loop.deterministic import deterministic, fix_workspace
from ablate.training.loop.train import train
from ablate.training.tasks import Data, LinearFunctions
from ablate.training.tasks.synthetic.linear_functions import LinearFunctionsData
from ablate.training.trial import Execution, Trial

STRICT = Execution(deterministic=True)
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
CUDA = torch.device("cuda")


class Scattered(LinearFunctions):
    """Its loss writes to places, of which PyTorch says that the order does not matter to it."""

    kind: Literal["scattered"] = "scattered"

    def open(self) -> Data:
        return ScatteredData(self)


class ScatteredData(LinearFunctionsData):
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        torch.zeros(2).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
        return super().loss(outputs, targets)


def settings() -> tuple[object, ...]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        cudnn.deterministic,
        cudnn.benchmark,
        os.environ.get(WORKSPACE),
    )


def test_an_operation_without_a_deterministic_algorithm_ends_the_trial(tiny: Trial, memory: Callable) -> None:
    trial = tiny.changed(task=Scattered.model_validate({**tiny.task.data(), "kind": "scattered"}))
    before = settings()
    assert train(trial, memory()).step == 12
    with pytest.raises(RuntimeError, match="put_ does not have a deterministic implementation"):
        train(trial.changed(execution=STRICT), memory())
    assert settings() == before


@pytest.mark.parametrize("workspace", [None, ":16:8", ":4096:2:16:8", ":4096:8"])
@pytest.mark.parametrize("warns", [False, True])
def test_settings_are_restored_after(monkeypatch: pytest.MonkeyPatch, workspace: str | None, warns: bool) -> None:
    """Settings of the caller, too, and if training fails."""
    monkeypatch.setenv(WORKSPACE, workspace or "")
    if workspace is None:
        monkeypatch.delenv(WORKSPACE)
    monkeypatch.setattr(cudnn, "benchmark", True)
    torch.use_deterministic_algorithms(warns, warn_only=warns)
    try:
        before, during = settings(), ()
        with contextlib.suppress(ZeroDivisionError), deterministic(wanted=True):
            during = settings()
            raise ZeroDivisionError
        kept = workspace if workspace in {":16:8", ":4096:8"} else ":4096:8"
        assert during == (True, False, True, False, kept)
        assert settings() == before
        with deterministic(wanted=False):
            assert settings() == before
    finally:
        torch.use_deterministic_algorithms(False)


def test_on_cuda_any_trial_leaves_the_process_fit_for_a_deterministic_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch looks at the variable at the first product of a process, and never again."""
    monkeypatch.setenv(WORKSPACE, "")
    monkeypatch.delenv(WORKSPACE)
    fix_workspace(torch.device("cpu"), wanted=False)
    assert WORKSPACE not in os.environ
    fix_workspace(CUDA, wanted=False)
    for wanted in (False, True):
        with deterministic(wanted=wanted):
            assert os.environ[WORKSPACE] == ":4096:8"
    fix_workspace(CUDA, wanted=True)
    assert os.environ[WORKSPACE] == ":4096:8"
    monkeypatch.setenv(WORKSPACE, ":4096:2:16:8")  # the user's own is kept or refused
    fix_workspace(CUDA, wanted=False)
    assert os.environ[WORKSPACE] == ":4096:2:16:8"
    with pytest.raises(EnvironmentProblem, match=r":16:8 on CUDA .* it is :4096:2:16:8"):
        fix_workspace(CUDA, wanted=True)
    monkeypatch.setenv(WORKSPACE, ":16:8")
    fix_workspace(CUDA, wanted=True)


def test_on_the_cpu_it_changes_no_number_and_no_key(tiny: Trial, memory: Callable) -> None:
    plain, strict = memory(), memory()
    trial = tiny.changed(execution=STRICT)
    train(tiny, plain)
    train(trial, strict)
    assert numbers(plain) == numbers(strict)
    assert trial.key == tiny.key
    assert trial.data()["execution"]["deterministic"] is True
