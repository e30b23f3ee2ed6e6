"""Messages for no trial, one trial and several trials."""

from pathlib import Path

import pytest

from runners.cli.outcome import report_outcome
from runners.execution.run import RunResult
from runners.monitoring.failure_groups import kind_line
from runners.monitoring.retry import RetrySelection


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "nothing was trained"),
        (
            1,
            "1 trained; 1 failed; 1 not finished, the same command goes on with it; 1 was done before; "
            "1 of these ran other code (--again trains it again); "
            "1 failed before and was not tried again (--retry does)",
        ),
        (
            2,
            "2 trained; 2 failed; 2 not finished, the same command goes on with them; 2 were done before; "
            "2 of these ran other code (--again trains them again); "
            "2 failed before and were not tried again (--retry does)",
        ),
    ],
)
def test_a_run_says_what_came_of_it(number: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts = dict.fromkeys(("ok", "failed", "stopped", "skipped", "skipped_other_code", "skipped_failed"), number)
    report_outcome(RunResult(**counts, interrupted=False, submission=None), Path("here"))
    assert capsys.readouterr().err.splitlines()[0] == f"{said}; results in here"


def test_retry_says_why_trials_are_left() -> None:
    found = RetrySelection(frozenset(), {"queued": 1, "running": 2, "done": 1, "lost": 0, "unknown": 2})
    assert found.in_words() == (
        "1 is queued; 2 are being trained; 1 is done (`ablate run SPEC --again` is for those of other code); "
        "2 are unknown: the cluster does not answer"
    )


def test_a_kind_of_failure_says_how_many_are_failed_and_how_many_queued_again() -> None:
    assert kind_line(2, 0, "error", "m") == "failed: 2 x error: m"
    assert kind_line(2, 1, "error", "m") == "failed: 2 x error and 1 queued again: m"
    assert kind_line(0, 1, "error", "m") == "failed and queued again: 1 x error: m"
