"""Long steps are named while they last, quick ones are not."""

import threading

import pytest

from ablate.runners import output
from ablate.runners.output import slow_notice


def test_a_step_that_lasts_is_named_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    is_named = threading.Event()
    monkeypatch.setattr(output, "SLOW_AFTER_S", 0.001)
    lines: list[str] = []
    monkeypatch.setattr(output, "say", lambda text: (lines.append(text), is_named.set()))
    with slow_notice("lasting"):
        assert is_named.wait(60)
    assert lines == ["lasting ..."]
    monkeypatch.setattr(output, "SLOW_AFTER_S", 3600.0)
    with slow_notice("quick"):
        (timer,) = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    timer.join(60)
    assert threading.active_count() == before
