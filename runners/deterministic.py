"""Training with deterministic algorithms only: the same bits every time, also on a GPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.backends import cudnn

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_FIXED = (":4096:8", ":16:8")
"""Workspaces with which cuBLAS adds up in one order, by its documentation; the first costs 32 MiB and is the faster."""


@contextmanager
def deterministic(*, wanted: bool) -> Iterator[None]:
    """Where it is `wanted`: an operation without a deterministic algorithm raises RuntimeError, and cuDNN does not try
    algorithms out. Everything, the environment too, is as it was afterwards."""
    if not wanted:
        yield
        return
    mode, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fixed, tries, cublas = cudnn.deterministic, cudnn.benchmark, os.environ.get(_CUBLAS)
    try:
        torch.use_deterministic_algorithms(mode=True)
        cudnn.deterministic, cudnn.benchmark = True, False
        if cublas not in _FIXED:
            os.environ[_CUBLAS] = _FIXED[0]
        yield
    finally:
        torch.use_deterministic_algorithms(mode=mode, warn_only=warns)
        cudnn.deterministic, cudnn.benchmark = fixed, tries
        if cublas is None:
            os.environ.pop(_CUBLAS, None)
        else:
            os.environ[_CUBLAS] = cublas
