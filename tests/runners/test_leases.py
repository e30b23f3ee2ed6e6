"""An observer's own clock decides who is alive; no other clock can make it take a live trial, or wait for ever."""

import errno
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from row_fakes import Clock
from synthetic import write_start
from waiting import wait_until

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.claims import Claim, Taken, claim
from ablate.runners.attempts.leases import Leases, host_memory
from ablate.store.files import trial_state
from ablate.store.files.atomic import read_json
from ablate.store.files.attempts import Heartbeat
from ablate.store.files.layout import Layout
from ablate.store.files.records import Progress

TRIAL = "ab" * 16
ABOUT = {"submission": "20260101T000000-abcdef", "worker": 0, "path": None, "device": None, "threads": 1, "code": None}
BEAT_S = 10.0
LEASE_S = 60.0
ELSEWHERE = {"host": "another host", "heartbeat_s": BEAT_S}
HOUR_S = 3600


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leases(clock: Clock, tmp_path: Path) -> Leases:
    return observer(clock, tmp_path)


def observer(clock: Callable[[], float], shared: Path | None, place: dict[str, Any] | None = None) -> Leases:
    return Leases(place, clock=clock, shared=lambda: shared)


def alive(leases: Leases, layout: Layout) -> bool:
    return leases.alive(layout, TRIAL, 1, json.loads(layout.start(TRIAL, 1).read_bytes()))


def alive_for(leases: Leases, layout: Layout, clock: Clock, seconds: float, every_s: float = 5.0) -> bool:
    """Whether it is alive at the last of looks every few seconds, of which the first is now."""
    found, until = alive(leases, layout), clock.now + seconds
    while clock.now < until:
        clock.now = min(clock.now + every_s, until)
        found = alive(leases, layout)
    return found


def beat(layout: Layout, at_s: float) -> None:
    os.utime(layout.heartbeat(TRIAL, 1), (at_s, at_s))


@pytest.mark.parametrize("ahead_s", [-10 * HOUR_S, 10 * HOUR_S])
def test_an_attempt_elsewhere_lives_for_a_lease_after_a_sign_though_wall_clocks_jump(
    layout: Layout, leases: Leases, clock: Clock, ahead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_start(layout, TRIAL, 1, **ELSEWHERE)
    beat(layout, time.time() + ahead_s)
    monkeypatch.setattr(time, "time", lambda: ahead_s)
    assert alive(leases, layout)
    monkeypatch.setattr(time, "time", lambda: -ahead_s)
    assert alive_for(leases, layout, clock, LEASE_S - 0.1)
    clock.now += 0.2
    assert not alive(leases, layout)
    layout.heartbeat(TRIAL, 1).unlink()
    anew = observer(clock, None)  # it never sees any sign of life
    assert alive(anew, layout)
    assert not alive_for(anew, layout, clock, LEASE_S)


@pytest.mark.parametrize("gap_s", [BEAT_S, 30.0, HOUR_S])
def test_time_without_looks_is_no_silence(layout: Layout, leases: Leases, clock: Clock, gap_s: float) -> None:
    """It may have been cut off together with the owner, which has had no turn since."""
    write_start(layout, TRIAL, 1, **ELSEWHERE)
    looks = 1
    while alive(leases, layout):
        clock.now += gap_s
        looks += 1
    assert looks == 1 + LEASE_S / BEAT_S


def test_an_outage_takes_no_trial_from_its_owner(
    layout: Layout, leases: Leases, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_start(layout, TRIAL, 1, **ELSEWHERE)
    assert alive(leases, layout)
    plain = trial_state._modified_ns

    def away(path: Path) -> int:
        clock.now += 10 * LEASE_S
        return plain(path)

    def fail(_: Path) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(trial_state, "_modified_ns", fail)
        for _ in range(20):
            clock.now += BEAT_S
            with pytest.raises(EnvironmentProblem, match="Input/output error"):
                alive(leases, layout)
        patch.setattr(trial_state, "_modified_ns", away)
        assert alive(leases, layout)
    assert alive_for(leases, layout, clock, LEASE_S - BEAT_S - 0.1)
    clock.now += 0.2
    assert not alive(leases, layout)


@pytest.mark.parametrize(
    ("theirs", "dead"),
    [
        ({"restarts": 0}, True),
        ({"restarts": 1}, True),
        ({"restarts": 2}, False),  # its neighbour in the same task
        ({"restarts": 3}, False),
        ({"restarts": 0, "job": "77_4"}, False),
        ({"restarts": 0, "scheduler": "another"}, False),
        ({"restarts": None}, False),
        (None, False),
    ],
)
def test_an_earlier_life_is_dead(layout: Layout, clock: Clock, theirs: dict[str, Any] | None, dead: bool) -> None:
    ours = {"scheduler": "slurm", "job": "77_3", "restarts": 2, "node": "n2", "devices": "0"}
    place = None if theirs is None else {**ours, "node": "n1", **theirs}
    write_start(layout, TRIAL, 1, **ELSEWHERE, place=place)
    assert alive(observer(clock, None, ours), layout) == (not dead)
    assert alive(observer(clock, None), layout)
    write_start(layout, TRIAL, 1, **ELSEWHERE, place={"restarts": 0})  # it names no job
    assert alive(observer(clock, None, {"restarts": 1}), layout)


def test_observers_of_one_host_share_what_they_saw_since_its_boot(layout: Layout, clock: Clock, tmp_path: Path) -> None:
    write_start(layout, TRIAL, 1, **ELSEWHERE)
    old = tmp_path / "old"
    old.touch()
    os.utime(old, (0, 0))
    assert alive_for(observer(clock, tmp_path), layout, clock, LEASE_S - 1)
    (file,) = (path for path in tmp_path.iterdir() if path.is_file())
    whole = file.read_text()
    clock.now += 2
    beat_ns = json.loads(whole)[0]
    damaged = ["12", "[1, 2, 3, 4]", f"[{beat_ns}, 99, NaN]", f"[{beat_ns}, NaN, 0]", '["a", "b", "c"]', "{}", "\0"]
    for text in (*(whole[:size] for size in range(len(whole))), *damaged):
        file.write_text(text)
        assert alive(observer(clock, tmp_path), layout), text
    file.write_text(whole)
    assert not alive(observer(clock, tmp_path), layout)
    assert alive(observer(clock, None), layout)
    beat(layout, 5)
    assert alive_for(observer(clock, tmp_path), layout, clock, LEASE_S - 1)
    clock.now -= HOUR_S  # another boot
    assert alive_for(observer(clock, tmp_path), layout, clock, LEASE_S - 1)
    clock.now += 1
    assert not alive(observer(clock, tmp_path), layout)


def test_what_another_user_could_have_written_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plain = host_memory.__wrapped__
    ours = plain()
    assert ours is not None
    assert ours.stat().st_mode & 0o777 == 0o700
    ours.chmod(0o777)
    assert plain() is None
    ours.rmdir()
    ours.symlink_to(tmp_path)
    assert plain() is None


def test_a_heartbeat_outlives_a_stale_handle(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    write_start(layout, TRIAL, 1)
    tried: list[int] = []
    plain = Path.open

    def stale(path: Path, *how: Any, **more: Any) -> Any:
        if path.name == "heartbeat" and len(tried) <= 20:
            tried.append([errno.ESTALE, errno.EIO, errno.ENOENT][len(tried) % 3])
            raise OSError(tried[-1], "Stale file handle")
        return plain(path, *how, **more)

    heart = Heartbeat(layout.heartbeat(TRIAL, 1), 0.001)
    monkeypatch.setattr(Path, "open", stale)
    heart.start()
    heart.tell(7, 9, float("nan"))
    wait_until(lambda: len(tried) > 20)
    monkeypatch.undo()
    wait_until(lambda: Progress.of(layout, TRIAL, 1) is not None)
    heart.stop()
    found = Progress.of(layout, TRIAL, 1)
    assert found is not None
    assert (found.step, found.steps, found.loss) == (7, 9, None)


@pytest.mark.parametrize("field", ["step", "steps", "loss", "idle_s", "step_s"])
def test_a_wrong_value_in_a_heartbeat_hides_no_other(layout: Layout, field: str) -> None:
    values = {"step": 7, "steps": 9, "loss": 1.5, "idle_s": 2.0, "step_s": 0.5}
    place = layout.heartbeat(TRIAL, 1)
    place.parent.mkdir(parents=True, exist_ok=True)
    for wrong in ("7", [7], True):
        place.write_text(json.dumps({**values, field: wrong}))
        assert Progress.of(layout, TRIAL, 1) == Progress(**{**values, field: None})
    place.write_text("[7]")
    assert Progress.of(layout, TRIAL, 1) is None


class Hosts(RuleBasedStateMachine):
    """Three hosts and one trial: any order of claims, signs of life, deaths, passing time and jumping clocks."""

    root: Path

    @initialize()
    def empty(self) -> None:
        Hosts.root = Hosts.root.with_name(f"{int(Hosts.root.name) + 1}")
        self.layout = Layout(self.root)
        self.clock = Clock()
        self.stamp = 1.8e9
        self.leases = {host: observer(lambda at=at: self.clock.now + 1e4 * at, None) for at, host in enumerate("abc")}
        self.owner: tuple[str, int] | None = None
        self.died_at: float | None = None
        self.looked_at: dict[str, float] = {}
        self.silent_s: dict[str, float] = {}

    @rule(host=st.sampled_from("abc"))
    def reach(self, host: str) -> None:
        if self.owner is not None and self.owner[0] == host and self.died_at is None:
            return
        plain, socket.gethostname = socket.gethostname, lambda: host
        try:
            about = {**ABOUT, "heartbeat_s": BEAT_S}
            found = claim(self.layout, TRIAL, about, retry=False, leases=self.leases[host])
        finally:
            socket.gethostname = plain
        if isinstance(found, Claim):
            assert self.owner is None or self.died_at is not None, "a live owner lost its trial"
            self.owner, self.died_at = (host, found.number), None
            self.looked_at, self.silent_s = {}, {}
            self.give_a_sign()
        else:
            assert found == Taken("running")
            gone_here = self.died_at is not None and self.owner is not None and self.owner[0] == host
            assert not gone_here, "a process of this host that is gone keeps its trial"
            since = min(BEAT_S, self.clock.now - self.looked_at.get(host, self.clock.now))
            self.silent_s[host] = self.silent_s.get(host, 0.0) + since
            self.looked_at[host] = self.clock.now
            assert self.silent_s[host] < LEASE_S or self.died_at is None, "a dead owner keeps its trial"

    @precondition(lambda self: self.owner is not None and self.died_at is None)
    @rule()
    def give_a_sign(self) -> None:
        assert self.owner is not None
        path = self.layout.heartbeat(TRIAL, self.owner[1])
        self.stamp += 0.001
        os.utime(path, (self.stamp, self.stamp))
        self.looked_at, self.silent_s = {}, {}

    @precondition(lambda self: self.owner is not None and self.died_at is None)
    @rule()
    def die(self) -> None:
        assert self.owner is not None
        start = self.layout.start(TRIAL, self.owner[1])
        start.write_text(json.dumps({**read_json(start), "pid_started": 1}))
        self.died_at = self.clock.now
        self.looked_at, self.silent_s = {}, {}

    @rule(seconds=st.sampled_from([0.5, 9.0, 25.0, 100.0]))
    def wait(self, seconds: float) -> None:
        """Time passes; a live owner gives its signs in it."""
        if self.owner is not None and self.died_at is None:
            self.clock.now += min(seconds, LEASE_S - 5)
            self.give_a_sign()
        else:
            self.clock.now += seconds

    @rule(seconds=st.sampled_from([-1e5, -10.0, 10.0, 1e5]))
    def jump(self, seconds: float) -> None:
        self.stamp += seconds

    @invariant()
    def attempts_are_numbered_without_a_gap(self) -> None:
        numbers = self.layout.attempts(TRIAL)
        assert numbers == list(range(1, len(numbers) + 1))
        assert (self.owner[1] if self.owner else 0) == len(numbers)


def test_no_order_of_events_takes_a_trial_from_a_live_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MOST_LOST", "MOST_FRUITLESS"):
        monkeypatch.setattr(f"ablate.runners.attempts.claims.{limit}", 10**6)
    Hosts.root = tmp_path / "0"
    how = settings(
        max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    run_state_machine_as_test(Hosts, settings=how)


def test_a_process_of_this_host_decides_and_one_of_another_container_does_not(
    layout: Layout, leases: Leases, clock: Clock
) -> None:
    write_start(layout, TRIAL, 1)
    clock.now += 10 * LEASE_S  # its beat does not matter
    assert alive(leases, layout)
    write_start(layout, TRIAL, 1, pid_started=1)
    assert not alive(leases, layout)
    write_start(layout, TRIAL, 1, pid_started=1, pid_space="another boot or container", heartbeat_s=BEAT_S)
    assert alive(leases, layout)
    assert not alive_for(leases, layout, clock, LEASE_S)
