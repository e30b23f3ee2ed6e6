"""Misfortune for a campaign on the test cluster: what it is made of, whom it hits, and what is left to see of it.

Which misfortune comes when and which of those who could be hit is hit is drawn with a seed. It comes as the campaign
gets on, so a slow machine has as much of it as a fast one.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, final

from cluster.cluster import Cluster, wait_for
from cluster.tasks import Task, in_queue, requeue

from ablate.runners.attempts.worker_logs import logs as logs_of
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state

Role = str
ROLES = ("worker", "server", "supervisor")
SIGNALS = {name: int(getattr(signal, f"SIG{name}")) for name in ("TERM", "USR2", "KILL")}

SIGNALLED = (
    ["KILL worker"] * 4
    + ["TERM worker"] * 2
    + ["USR2 worker"]
    + ["KILL server"] * 2
    + ["TERM server", "USR2 server"]
    + ["KILL supervisor"] * 2
    + ["TERM supervisor"]
    + ["USR2 supervisor"]
)
REQUEUED = ["requeue"] * 2 + ["urgent", "hide"]
MOST_LOST = 2
"""A trial that lost so many attempts is left alone: deaths without a step gained fail it, as they should."""
LAST = 0.85
"""The part of the trials that is complete when the last misfortune is due."""
PATIENCE_S = 120.0
QUIET_S = 5.0
"""A node fails only so long after its last fault: trials that were told to stop have ended then."""


class Process(NamedTuple):
    """A python process of a task."""

    role: Role
    pid: int
    node: str
    inner: int
    """Its number on its node."""


def plan(chance: random.Random) -> list[str]:
    """All that is to happen, in order; the controller restarts while all nodes are there, as it waits for them."""
    events = SIGNALLED + REQUEUED
    chance.shuffle(events)
    third = len(events) // 3
    fails = chance.randrange(third, 2 * third)
    events[fails + third : fails + third] = ["heal"]
    events[fails:fails] = ["fail"]
    restarts = chance.choice([*range(1, fails), *range(fails + third + 2, len(events))])
    return [*events[:restarts], "restart", *events[restarts:]]


@final
@dataclass
class Chaos:
    """Faults for the campaign `root` on `cluster`, whose jobs are `jobs`."""

    cluster: Cluster
    root: Path
    jobs: list[int]
    seed: int
    said: list[str] = field(default_factory=list)
    hits: Counter[str] = field(default_factory=Counter)
    others: list[int] = field(default_factory=list)
    """Urgent jobs of somebody else."""
    preempted: set[str] = field(default_factory=set)
    """Tasks that had to leave, for others or for no reason."""
    failed_node: str | None = None
    hit_at: dict[str, float] = field(default_factory=dict)
    """When each node last had a fault."""

    def __post_init__(self) -> None:
        self.layout = Layout(self.root)
        self._chance = random.Random(f"chaos {self.seed}")
        self._left = plan(self._chance)
        self._planned = len(self._left)
        self._began = time.monotonic()
        self._healed = True

    @property
    def over(self) -> bool:
        """Whether all has happened."""
        return not self._left

    @property
    def queue_empty(self) -> bool:
        """Whether the controller says that no job waits or runs."""
        return in_queue([*self.jobs, *self.others]) == []

    def advance(self, done: float) -> None:
        """Let happen what is due when the part `done` of the trials is complete."""
        while self._left and done >= LAST * (self._planned - len(self._left)) / self._planned:
            event = next(filter(self._possible, self._left), None)
            if event is None:
                return
            self._left.remove(event)
            what, _, whom = event.partition(" ")
            told = self._signal(what, whom) if whom else getattr(self, f"_{what}")()
            self.hits[event] += 1
            self.note(f"{event}: {told}")

    def note(self, text: str) -> None:
        """Something for the history."""
        self.said.append(f"{time.monotonic() - self._began:7.1f} s  {text}")

    # Faults:

    def _signal(self, name: str, role: Role) -> str:
        found: list[Process] = []

        def somebody() -> bool:
            found[:] = [each for each in self.processes() if each.role == role and self._may_hit(each, name)]
            return bool(found)

        wait_for(somebody, f"a {role} to hit with {name}", PATIENCE_S)
        hit = self._chance.choice(found)
        try:
            os.kill(hit.pid, SIGNALS[name])
        except ProcessLookupError:
            return self._signal(name, role)
        self.hit_at[hit.node] = time.monotonic()
        trial = self._training(hit)
        return f"{hit.node}, process {hit.inner}" + (f", training {trial[0][:8]} attempt {trial[1]}" if trial else "")

    def _requeue(self) -> str:
        task = self._chance.choice(self._running())
        if not requeue(task.name):
            return self._requeue()
        self.preempted.add(task.name)
        self.hit_at[task.node] = time.monotonic()
        return f"{task.name} on {task.node}"

    def _hide(self) -> str:
        """A worker starts before the records of its submission have reached its node."""
        records = [self.layout.submission_record(name) for name in self.layout.submission_ids()]
        hidden = [path.rename(path.with_suffix(".late")) for path in records]
        try:
            late = self._late_workers()
            told = self._requeue()
            wait_for(lambda: self._late_workers() > late, "a worker that waits for its records", PATIENCE_S)
        finally:
            for path, away in zip(records, hidden, strict=True):
                away.rename(path)
        return told

    def _late_workers(self) -> int:
        logs = [path for name in self.layout.submission_ids() for path in logs_of(self.layout, name).glob("*")]
        return sum(path.read_text(errors="replace").count("it may appear late") for path in logs)

    def _urgent(self) -> str:
        node = self._chance.choice(self._running()).node
        hit = [task.name for task in self._running() if task.node == node]
        self.preempted |= set(hit)
        self.hit_at[node] = time.monotonic()
        job = self.cluster.submit("true", "-p", "urgent", "-w", node, f"-c{self.cluster.shape.cpus}", "-o", "/dev/null")
        self.others.append(job)
        return f"job {job} wants {node}, where {', '.join(hit)} ran"

    def _restart(self) -> str:
        """A worker that dies just then wants to be queued again by a controller that is away."""
        died = self._signal("KILL", "supervisor")
        self.cluster.restart_controller()
        return f"the controller is back; meanwhile died {died}"

    def _fail(self) -> str:
        training: Counter[str] = Counter()

        def some() -> bool:
            now = time.monotonic()
            quiet = [each for each in self.processes() if now - self.hit_at.get(each.node, 0.0) > QUIET_S]
            training.clear()
            training.update(each.node for each in quiet if self._training(each) is not None)
            return bool(training)

        wait_for(some, "a node that trains and had no fault just before", PATIENCE_S)
        self.failed_node = self._chance.choice(sorted(training))
        self._healed = False
        self.cluster.fail(self.failed_node)
        return f"{self.failed_node}, where {training[self.failed_node]} trained"

    def _heal(self) -> str:
        assert self.failed_node is not None
        self.cluster.heal(self.failed_node)
        self._healed = True
        return self.failed_node

    def _possible(self, event: str) -> bool:
        """A node returns when it was missed; a controller that restarts, and a requeued task, wait for all nodes."""
        if event == "heal":
            return not self._healed and self.cluster.state(str(self.failed_node)).startswith("down")
        return event not in ("restart", "hide") or self._healed

    # Targets:

    def processes(self) -> list[Process]:
        """The python processes of all tasks, in an order that does not depend on their numbers."""
        parents: dict[int, tuple[int, list[str]]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                text = stat.read_text()
                command = stat.with_name("cmdline").read_bytes().decode().split("\0")
            except (OSError, UnicodeDecodeError):
                continue
            parents[int(stat.parent.name)] = int(text[text.rindex(")") + 1 :].split()[1]), command
        roles: dict[int, Role] = {}
        for pid, (_, command) in parents.items():
            if command[1:4] == ["-u", "-m", "ablate.runners.backends.slurm.node"] and str(self.root) in command:
                roles[pid] = "supervisor"
        for above, role in (("supervisor", "server"), ("server", "worker")):
            upper = {pid for pid, found in roles.items() if found == above}
            for pid, (parent, command) in parents.items():
                if parent in upper and any("ablate.runners.execution.fork_server" in word for word in command):
                    roles[pid] = role
        return sorted(self._described(roles), key=lambda each: (each.role, each.node, each.inner))

    def _described(self, roles: dict[int, Role]) -> Iterator[Process]:
        for pid, role in roles.items():
            place = Path("/proc") / str(pid)
            try:
                environment = (place / "environ").read_bytes().decode(errors="replace").split("\0")
                numbers = next(line for line in (place / "status").read_text().splitlines() if line[:6] == "NSpid:")
            except (OSError, StopIteration):
                continue
            node = next((word[16:] for word in environment if word.startswith("SLURMD_NODENAME=")), "?")
            yield Process(role, pid, node, int(numbers.split()[-1]))

    def _training(self, process: Process) -> tuple[str, int] | None:
        for key in self.layout.trial_keys():
            for found in trial_state(self.layout, key, lambda *_: True).attempts:
                place = found.start.get("place") or {}
                if found.end is None and (place.get("node"), found.start["pid"]) == (process.node, process.inner):
                    return key, found.attempt
        return None

    def _may_hit(self, process: Process, name: str) -> bool:
        if name != "KILL" or process.role != "worker":
            return True
        training = self._training(process)
        if training is None:
            return False
        attempts = trial_state(self.layout, training[0], lambda *_: False).attempts
        return sum(found.end is None for found in attempts) <= MOST_LOST

    def _running(self) -> list[Task]:
        found: list[Task] = []

        def some() -> bool:
            found[:] = [task for task in in_queue(self.jobs) or [] if task.state == "RUNNING"]
            return bool(found)

        wait_for(some, "a task that runs", PATIENCE_S)
        return sorted(found)
