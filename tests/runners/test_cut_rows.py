"""Rows whose trial ran out of memory: each worker that takes one tries smaller micro-batches, down to the smallest."""

from typing import Any

import pytest
from row_fakes import DONE, FREE, SUBMISSION, Silent
from synthetic import write_end, write_start
from toy_campaign import toy_grid

from ablate.runners.attempts.crash_counter import MOST_DEATHS, CrashCounter
from ablate.runners.attempts.manifest import trial_lines, write_submission
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import Worker
from ablate.runners.backends.slurm.worker.done_rows import DoneRows
from ablate.runners.backends.slurm.worker.row_state import RowStates
from ablate.runners.backends.slurm.worker.rows import NodeRows, RowShare
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state

GONE = {"pid": 2**22 + 1, "pid_started": 1}


def write_toy_submission(layout: Layout, fits: int) -> str:
    """Submit a trial that fits into memory in `fits` micro-batches, of at most 6; return its key."""
    grid = toy_grid(seeds=[0], fates=["too_big"], fits=fits, checkpoint_s=0.0, steps=100)
    line = next(trial_lines(grid))
    write_submission(layout, SUBMISSION, [line])
    layout.submission_record(SUBMISSION).write_text("{}")
    return str(line["trial"])


def job(layout: Layout, **fields: Any) -> RunRequest:
    return RunRequest(layout.root, SUBMISSION, **{"oom": "halve", **fields})


def worker(layout: Layout, number: int, **fields: Any) -> Worker:
    return Worker(job(layout, **fields), number, Silent(), own_process=False)


def rows(layout: Layout, *, marks: bool = False, **fields: Any) -> NodeRows:
    """Return the rows of a worker task; it reads and writes which are done only with `marks`."""
    done = DoneRows(layout if marks else Layout("/nowhere"), SUBMISSION)
    return NodeRows(RowStates(job(layout, **fields), "n0"), RowShare((0, 1), 0, 1), lambda: True, done)


def list_attempts(layout: Layout, key: str) -> list[tuple[int, str | None]]:
    """Return the micro-batches and the end of each attempt."""
    found = trial_state(layout, key).attempts
    return [(each.start["accumulate"], each.end and (each.end["reason"] or each.end["status"])) for each in found]


def test_a_trial_is_cut_by_the_next_where_its_worker_died_before_it_could(layout: Layout) -> None:
    key = write_toy_submission(layout, 4)
    worker(layout, 0)._try(0)  # and is killed
    assert list_attempts(layout, key) == [(1, "out_of_memory")]
    assert rows(layout, oom="fail").take() is None
    life = rows(layout)
    assert life.take() == 0
    write_start(layout, key, 2, **GONE, submission=SUBMISSION, accumulate=2)  # its worker vanished
    life.came_back(worker(layout, 1).run(0))
    assert list_attempts(layout, key) == [(1, "out_of_memory"), (2, None), (2, "out_of_memory"), (4, "ok")]
    assert (life.take(), life.rows_left(), life.unfinished) == (None, 0, False)


def test_a_trial_that_cannot_be_cut_any_smaller_is_tried_no_more_by_anybody(layout: Layout) -> None:
    """Each life that knows nothing of others takes it once and finds that out; who is told takes it not at all."""
    key = write_toy_submission(layout, 7)
    made = [(1, "out_of_memory"), (2, "out_of_memory"), (4, "out_of_memory")]
    for number in range(3):
        life = rows(layout, marks=number == 2)
        assert life.take() == 0
        outcome = worker(layout, number).run(0)
        assert (outcome.state, outcome.attempt is None) == ("failed", number > 0)
        life.came_back(outcome)
        assert (life.take(), life.rows_left(), life.unfinished) == (None, 0, False)
        assert list_attempts(layout, key) == made
    told = rows(layout, marks=True)
    assert (told.take(), told.rows_left(), told.unfinished) == (None, 0, False)


def test_a_trial_that_kills_workers_at_once_is_given_up(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    key = write_toy_submission(layout, 4)
    worker(layout, 0)._try(0)
    kills = iter(range(100))
    monkeypatch.setattr("ablate.runners.attempts.crash_counter.oom_kills", lambda: next(kills))
    deaths, life = CrashCounter(job(layout)), rows(layout)
    for death in range(1, MOST_DEATHS + 1):
        assert life.take() == 0
        outcome = deaths.at_work(0, GONE["pid"], "SIGKILL")
        if outcome is None:
            assert death < MOST_DEATHS
            life.give_back(0)
        else:
            life.came_back(outcome)
    assert (life.take(), life.rows_left(), life.unfinished) == (None, 0, False)
    assert list_attempts(layout, key) == [(1, "out_of_memory")]


def test_a_worker_that_is_overtaken_goes_on_from_there(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks, another tries the same pieces and dies, it claims: that these failed says nothing of smaller ones."""
    key = write_toy_submission(layout, 4)
    plain, overtaken = Worker._start_fields, []

    def about(self: Worker, *given: Any) -> dict[str, Any]:
        if not overtaken:
            overtaken.append(True)
            worker(layout, 1)._try(0)
        return plain(self, *given)

    worker(layout, 0)._try(0)
    monkeypatch.setattr(Worker, "_start_fields", about)
    assert worker(layout, 3).run(0).state == "done"
    assert list_attempts(layout, key)[-1] == (4, "ok")


@pytest.mark.parametrize(
    ("accumulate", "reason", "look"),
    [(1, "out_of_memory", FREE), (2, "out_of_memory", FREE), (None, "out_of_memory", DONE), (1, "error", DONE)],
)
def test_only_what_was_too_big_is_cut(layout: Layout, accumulate: int | None, reason: str, look: Any) -> None:
    key = write_toy_submission(layout, 4)
    write_start(layout, key, 1, **GONE, submission=SUBMISSION, accumulate=accumulate)
    write_end(layout, key, 1, status="failed", reason=reason)
    assert RowStates(job(layout), "n0").state_of_row(0) == look
    assert RowStates(job(layout, oom="fail"), "n0").state_of_row(0) == DONE
