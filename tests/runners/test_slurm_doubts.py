"""A node or the trials: which is at fault, by the failures of all workers."""

from dataclasses import replace
from pathlib import Path

import pytest

from runners.attempts.worker import Outcome
from runners.slurm.worker.worker_record import MOST_FAILURES, NodeHealth, only_node
from runners.slurm.worker_records import WorkerRecord
from runners.training.failure import Failure, breaks_process

MINE = WorkerRecord("20260101T000000-000000", 0, 0, 1, "7_0", "n0", "n0", 5, 1.0, 2.0, 3.0, gpus=1, slots=1)
OTHER = replace(MINE, worker=1, node="n1")


def fail(row: int, fingerprint: str = "f", reason: str = "error") -> Outcome:
    return Outcome(row, "failed", 1, Failure(reason, "it broke", None, fingerprint))  # type: ignore[arg-type]


def verdict(records: list[WorkerRecord], outcomes: list[Outcome], *, alone: bool = False) -> str | None:
    doubts = NodeHealth(MINE, lambda: records, lambda: alone)
    said = [doubts.came_back(outcome) for outcome in outcomes]
    return next((each for each in said if each is not None), None)


FAILING = [fail(row) for row in range(MOST_FAILURES)]


@pytest.mark.parametrize(
    ("records", "refuses"),
    [
        ([MINE, replace(OTHER, failures=("g",))], True),
        ([replace(OTHER, failures=("f",))], False),
        ([replace(OTHER, ok=5)], True),
        ([replace(OTHER, ok=5, failures=("f",))], False),
        ([replace(OTHER, ok=5), replace(OTHER, restarts=2, failures=("f",))], False),  # lives of one worker
        ([replace(OTHER, ok=5), replace(OTHER, worker=2, node="n2", failures=("f",))], True),  # n2 is as bad as this
        ([replace(MINE, worker=4, failures=("f",))], True),  # on this very node
        ([replace(MINE, worker=4, ok=9)], True),  # another device of this node is well
        ([replace(MINE, worker=4, ok=9, failures=("f",))], False),
        ([replace(MINE, restarts=0, ok=9)], False),  # it has trained well here
    ],
)
def test_failures_that_good_nodes_meet_too_are_the_trials_own(records: list[WorkerRecord], refuses: bool) -> None:
    assert (verdict(records, FAILING) is not None) == refuses


def test_a_node_is_refused_for_failures_in_a_row_that_say_something_of_it() -> None:
    def refuses(outcomes: list[Outcome], *records: WorkerRecord, alone: bool = False) -> bool:
        return verdict(list(records), outcomes, alone=alone) is not None

    assert not refuses([Outcome(9, "ok", 1), *FAILING])  # it has trained a trial
    assert not refuses(FAILING[:-1])
    for reason, expected in (("diverged", False), ("out_of_memory", False), ("killed", True)):
        assert refuses([fail(row, reason=reason) for row in range(9)]) == expected
    assert not refuses([Outcome(row, "was_failed") for row in range(9)])
    met = replace(OTHER, ok=1, failures=("f",))
    mine = [fail(row, "mine") for row in range(MOST_FAILURES)]  # count beside failures that others have met
    assert not refuses([*FAILING, *mine[:-1]], met)
    assert refuses([*FAILING, *mine], met)
    assert not refuses(FAILING, MINE, alone=True)  # nothing can be compared with the only node
    assert refuses(FAILING, replace(MINE, worker=4, ok=9), alone=True)


@pytest.mark.parametrize(
    ("requested", "runs_in", "is_only"),
    [(None, "gpu", True), (None, "old", False), ("gpu", "gpu", True), ("gpu,old", "gpu", False), (None, "none", False)],
)
def test_the_nodes_of_all_requested_partitions_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requested: str | None, runs_in: str, is_only: bool
) -> None:
    program = tmp_path / "sinfo"
    cases = "*=gpu,old*) echo n1; echo n2 ;; *=gpu*) echo n1; echo n1 ;; *=old*) echo n1; echo n2 ;; *=none*) ;;"
    program.write_text(f'#!/bin/sh\ncase "$*" in {cases} esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert only_node(requested, {"SLURM_JOB_PARTITION": runs_in}) == is_only
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert not only_node(None, {})


@pytest.mark.parametrize(
    ("error", "breaks"),
    [
        (RuntimeError("CUDA error: device-side assert triggered"), True),
        (RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED when calling cublasSgemm"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"), True),
        (RuntimeError("Triton Error [CUDA]: unspecified launch failure"), True),
        (type("AcceleratorError", (RuntimeError,), {})("unspecified"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), False),
        (RuntimeError("CUDA error: out of memory"), False),
        (RuntimeError("shapes do not match"), False),
        (ValueError("CUDA error: this is a text"), False),
    ],
)
def test_an_error_of_cuda_spends_the_process_and_want_of_memory_does_not(error: Exception, breaks: bool) -> None:
    assert breaks_process(error) == breaks
    wrapped = ValueError("while training")
    wrapped.__cause__ = error
    assert breaks_process(wrapped) == breaks
