"""Long steps are named while they last, quick ones are not; of nested steps the inner one is named."""

import threading
from collections.abc import Callable
from typing import final

import pytest

from runners import slow_notice as module
from runners.slow_notice import slow_notice


@final
class Stopped:
    """Timers that fire when the test says that their time has come."""

    def __init__(self) -> None:
        self.going: list[Callable[[], None]] = []

    def __call__(self, after_s: float, fire: Callable[[], None]) -> "Stopped.One":
        assert after_s == module.AFTER_S
        return Stopped.One(self, fire)

    def passes(self) -> None:
        """The time of every timer that goes."""
        for fire in self.going.copy():
            self.going.remove(fire)
            fire()

    class One:
        def __init__(self, all_: "Stopped", fire: Callable[[], None]) -> None:
            self._all, self._fire = all_, fire

        def start(self) -> None:
            self._all.going.append(self._fire)

        def cancel(self) -> None:
            if self._fire in self._all.going:
                self._all.going.remove(self._fire)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Stopped:
    made = Stopped()
    monkeypatch.setattr(module, "Timer", made)
    return made


def test_a_part_that_lasts_is_named_once(clock: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    with slow_notice("packing"):
        clock.passes()
        clock.passes()
    assert capsys.readouterr().err == "packing ...\n"
    with slow_notice("quick"):
        pass
    clock.passes()
    assert capsys.readouterr().err == ""


def test_an_outer_part_is_named_for_its_own_time_only(clock: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    with slow_notice("asking"):
        with slow_notice("planning"):
            clock.passes()
        with slow_notice("packing"):
            pass
        assert capsys.readouterr().err == "planning ...\n"
        clock.passes()
        assert capsys.readouterr().err == "asking ...\n"
        with pytest.raises(ZeroDivisionError), slow_notice("failing"):
            raise ZeroDivisionError
    assert clock.going == []


def test_real_timers_name_a_part_and_leave_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    said = threading.Event()
    monkeypatch.setattr(module, "AFTER_S", 0.001)
    lines: list[str] = []
    monkeypatch.setattr(module, "say", lambda text: (lines.append(text), said.set()))
    with slow_notice("lasting"):
        assert said.wait(60)
    assert lines == ["lasting ..."]
    monkeypatch.setattr(module, "AFTER_S", 3600.0)
    with slow_notice("quick"):
        (timer,) = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    timer.join(60)
    assert threading.active_count() == before
