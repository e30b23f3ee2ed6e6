"""The whole promise at once: whatever happens to a campaign on a cluster, in the end it is as if nothing had."""

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from cluster.chaos import REQUEUED, ROLES, SIGNALLED, SIGNALS, Chaos
from cluster.chaos_laws import (
    abandoned,
    broken,
    complete,
    differences,
    history,
    planned,
    processes_that_know,
    recorded_again,
)
from cluster.chaos_training import SEEDS, grid, hogs, over
from cluster.cluster import Cluster, Shape, wait_for
from cluster.user import end_long_lives
from real_spec import real_spec
from slurm_node import plain
from toy_campaign import tables

from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import read_submission_record
from ablate.runners.attempts.worker_records import read_workers
from ablate.runners.backends.slurm.scheduler import SlurmScheduler as Scheduler
from ablate.runners.backends.slurm.spec import Slurm
from ablate.runners.backends.slurm.submit.draft import Drafter
from ablate.runners.backends.slurm.submit.submit import submit as queue
from ablate.runners.cli.app import execute
from ablate.runners.execution import Inline
from ablate.runners.execution.run import run_campaign
from ablate.runners.provenance.specfile import load_spec_file
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state

SEED = int(os.environ.get("CHAOS_SEED", "1"))
TOYS = "from cluster.chaos_training import {made} as made\n\ngrid = made()\n"
HEARTBEAT_S = 2.0
TRIALS = 2 * SEEDS + 2 + 6
SLOTS = 2


@pytest.fixture
def large(slurm_installed: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster of its own, of three nodes for two workers each."""
    with Cluster(Shape(nodes=3, cpus=6, gpus=0, settings={"JobAcctGatherParams": "OverMemoryKill"})) as cluster:
        for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_"))]:
            monkeypatch.delenv(name)
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        yield cluster


def setup(place: Path) -> tuple[str, ...]:
    """Shell lines: each node has a disk of its own, and diaries are kept."""
    disk = f"{place}/disk-$SLURMD_NODENAME"
    return (f'export CHAOS_STEPS={place}/steps TMPDIR="{disk}"', f'mkdir -p "{disk}"', "export OMP_NUM_THREADS=1")


def submit(place: Path) -> list[int]:
    """Queue toys, 2 toys that hog memory and 6 real trials in the campaign in `place`; the jobs."""
    (place / "steps").mkdir()
    real = place / "real.py"
    size = 'gpus=0, cpus=2, mem="3500M", workers=2'
    asked = f'{size}, time="30m", signal_s=60, partition="preempt", heartbeat_s={HEARTBEAT_S}'
    slurm_line = f"slurm = Slurm({asked}, setup={setup(place)!r})"
    training, execution = "steps=400, evaluate_every=200", "checkpoint_s=1"
    real.write_text(real_spec("real", training=training, execution=execution, after=slurm_line))
    root = place / "campaign"
    slurm = Slurm(
        gpus=0, cpus=2, per_gpu=SLOTS, time="30m", signal_s=60, heartbeat_s=HEARTBEAT_S, workers=5, mem="3500M",
        partition="preempt", setup=setup(place),
    )  # fmt: skip
    for made, request in {"grid": slurm, "hogs": slurm.changed(workers=1, per_gpu=1, mem="1200M", oom="halve")}.items():
        toys = place / f"{made}.py"
        toys.write_text(TOYS.format(made=made))
        asked = RunRequest(root, files=(toys,))
        queue(Drafter(asked, load_spec_file(toys).values(), request, Scheduler()), lambda _: None)
    assert execute(["run", str(real), "--on", "slurm", "--campaign", str(root)]) == 0
    layout = Layout(root)
    return [job for each in layout.submission_ids() for job in read_submission_record(layout, each).jobs]


def submit_endless(place: Path) -> int:
    """Queue two trials that no life of a worker can end, in a campaign of their own; the job."""
    toys = place / "endless.py"
    toys.write_text(TOYS.format(made="endless"))
    slurm = Slurm(
        gpus=0, cpus=2, per_gpu=2, time="30m", signal_s=6, heartbeat_s=0.5, workers=1, mem="3500M", partition="preempt",
        setup=setup(place)[1:],
    )  # fmt: skip
    asked = RunRequest(place / "endless", files=(toys,))
    grids = list(load_spec_file(toys).values())
    queued = queue(Drafter(asked, grids, slurm, Scheduler()), lambda _: None)
    assert queued.record is not None
    (job,) = queued.record.jobs
    return job


def undisturbed(place: Path) -> dict[str, Any]:
    """The tables of the same trials, one after another in this process."""
    quiet = {"land_every_s": None, "progress": False}
    real = place / "real.py"
    run_campaign(place / "calm", [grid(step_s=0.0), hogs(accumulate=2)], Inline(), RunRequest(**quiet))  # type: ignore[arg-type]
    run_campaign(place / "calm", load_spec_file(real).values(), Inline(), RunRequest(files=(real,), **quiet))  # type: ignore[arg-type]
    return plain(tables(place / "calm"))


def until_over(chaos: Chaos, steps: Path, endless: int) -> None:
    """Disturb the campaign until all has happened and nothing of it, or of the job `endless`, is queued or running."""
    layout, total, lives = chaos.layout, len(planned(chaos.layout)), set[Path]()
    chaos.others.append(endless)

    def ended() -> bool:
        chaos.advance(complete(layout) / total)
        if chaos.over:
            over(steps).touch()
        end_long_lives(chaos.cluster, Layout(layout.root.with_name("endless")), endless, lives)
        return chaos.queue_empty

    wait_for(ended, "the queue to be empty", 420)


def happened(chaos: Chaos) -> None:
    """There was chaos: what holds afterwards was put to the test."""
    assert chaos.over
    assert set(chaos.hits) == {*SIGNALLED, *REQUEUED, "fail", "heal", "restart"}
    assert {f"{name} {role}" for name, role in product(SIGNALS, ROLES)} <= set(chaos.hits)
    layout = chaos.layout
    workers = [each for name in layout.submission_ids() for each in read_workers(layout, name)]
    tasks = {each.job for each in workers}
    assert len(chaos.preempted & tasks) >= 0.2 * len(tasks)
    assert any(each.restarts > 0 for each in workers)
    attempts = [found for key in planned(layout) for found in trial_state(layout, key).attempts]
    lost = [found for found in attempts if found.end is None]
    assert any((found.start["place"] or {})["node"] == chaos.failed_node for found in lost)
    assert any(found.start["resumed_from"] for found in attempts)
    assert any((found.end or {}).get("reason") == "out_of_memory" for found in attempts)
    assert recorded_again(layout.root) > 0


def failed_after_three(layout: Layout) -> None:
    """Trials that no life can end do not repeat without end."""
    for key in planned(layout):
        state = trial_state(layout, key)
        assert (state.state, len(state.attempts) <= 10) == ("failed", True), state
        assert "3 workers in a row" in (state.attempts[-1].end or {})["message"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_campaign_that_everything_happens_to_ends_as_if_nothing_had(large: Cluster, tmp_path: Path) -> None:
    jobs = submit(tmp_path)
    chaos = Chaos(large, tmp_path / "campaign", jobs, SEED)
    layout, steps = chaos.layout, tmp_path / "steps"
    try:
        assert len(set(planned(layout))) == len(planned(layout)) == TRIALS
        until_over(chaos, steps, submit_endless(tmp_path))
        assert complete(layout) == TRIALS
        assert not broken(layout, steps), "\n".join(broken(layout, steps))
        assert not abandoned(layout), abandoned(layout)
        happened(chaos)
        failed_after_three(Layout(tmp_path / "endless"))
        wait_for(lambda: not processes_that_know(steps), f"the end of {processes_that_know(steps)}")
        different = differences(plain(tables(layout.root)), undisturbed(tmp_path))
        assert not different, "\n".join(different[:20])
    except BaseException as error:
        error.add_note(history(layout, chaos.said))
        raise
