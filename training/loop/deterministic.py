"""Training with deterministic algorithms only: the same bits every time, also on a GPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.backends import cudnn

from ablate.grid.errors import EnvironmentProblem

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_FIXED = (":4096:8", ":16:8")
"""Workspaces with which cuBLAS adds up in one order, by its documentation; the first costs 32 MiB and is the faster."""


def fix_workspace(device: torch.device, *, wanted: bool) -> None:
    """Set cuBLAS's workspace before the first product; EnvironmentProblem if `wanted` and the user set another."""
    if device.type != "cuda":
        return
    workspace = os.environ.setdefault(_CUBLAS, _FIXED[0])
    if wanted and workspace not in _FIXED:
        raise EnvironmentProblem(
            f"execution.deterministic needs {_CUBLAS}={' or '.join(_FIXED)} on CUDA from the start of a process; it is "
            f"{workspace}; unset it and start anew"
        )


@contextmanager
def deterministic(*, wanted: bool) -> Iterator[None]:
    """If `wanted`, raise RuntimeError for an operation without a deterministic algorithm; restore all settings."""
    if not wanted:
        yield
        return
    mode, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    workspace = os.environ.get(_CUBLAS)
    try:
        torch.use_deterministic_algorithms(mode=True)
        if workspace not in _FIXED:
            os.environ[_CUBLAS] = _FIXED[0]
        with cudnn.flags(enabled=cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=cudnn.allow_tf32):
            yield
    finally:
        torch.use_deterministic_algorithms(mode=mode, warn_only=warns)
        if workspace is None:
            os.environ.pop(_CUBLAS, None)
        else:
            os.environ[_CUBLAS] = workspace
