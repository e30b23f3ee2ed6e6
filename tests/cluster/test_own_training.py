"""Training code of a user's own on a real cluster."""

from pathlib import Path

import own_experiment
from cluster.cluster import Cluster
from cluster.user import User, wait_until_over
from program_scripts import LASTING

from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.execution.run import run_campaign
from ablate.runners.provenance.specfile import load_spec_file
from ablate.store.store import Store

SPEC = """
from ablate import Slurm

grid = line_grid(deaths={deaths!r}, execution={{"checkpoint_s": 0}})
slurm = Slurm(partition="debug", time="5m", workers=2)
"""
VALUES = (
    "SELECT label, seed, name, CAST(point AS VARCHAR), value FROM v_final "
    "WHERE NOT starts_with(name, 'system.') ORDER BY ALL"
)


PROGRAM = """
from ablate import Command, Grid, Measure, Slurm, over

base = Command(
    argv=["python", "train.py", "{{lr}}", "{{directory}}", {deaths!r}],
    fields={{"lr": 0.1}},
    metrics=r"step (?P<step>\\d+) loss (?P<loss>\\S+)",
    checkpoint="state.txt",
    resume="--resume",
    steps=12,
)
axes = [over("fields.lr", [0.1, 0.3])]
grid = Grid(name="programs", base=base, axes=axes, seeds=range(2), measure=Measure(name="loss"))
slurm = Slurm(partition="debug", time="5m", workers=2)
"""


def values(root: Path) -> list[tuple[object, ...]]:
    with Store.open(root) as store:
        return store.sql(VALUES).rows()


def test_a_killed_and_a_preempted_training_go_on_as_if_nothing_had_happened(cluster: Cluster, user: User) -> None:
    deaths = user.place / "deaths"
    deaths.write_text("3 SIGKILL\n7 SIGTERM\n", encoding="utf-8")
    text = Path(own_experiment.__file__).read_text(encoding="utf-8").replace('"tests_line"', '"tests_cluster_line"')
    user.spec.write_text(text + SPEC.format(deaths=str(deaths)))
    user.queues()
    wait_until_over(cluster)
    assert user.ok() == 4
    assert deaths.read_text(encoding="utf-8") == ""
    assert sum(len(state.attempts) for state in user.states().values()) > 4
    local = RunRequest(user.place / "local", land_every_s=None, progress=False)
    run_campaign(local.root, load_spec_file(user.spec).values(), request=local)
    assert values(user.root) == values(local.root) != []


def test_a_program_that_is_killed_and_preempted_goes_on_from_its_checkpoint(cluster: Cluster, user: User) -> None:
    deaths = user.place / "deaths"
    deaths.write_text("5 SIGKILL\n7 SIGTERM\n", encoding="utf-8")
    (user.place / "train.py").write_text(f"import beside\n{LASTING}", encoding="utf-8")
    (user.place / "beside.py").write_text("", encoding="utf-8")
    user.spec.write_text(PROGRAM.format(deaths=str(deaths)))
    user.queues()
    wait_until_over(cluster)
    assert user.ok() == 4
    assert deaths.read_text(encoding="utf-8") == ""
    assert sum(len(state.attempts) for state in user.states().values()) > 4
    logs = [path.read_text(encoding="utf-8") for path in user.layout.trials.glob("*/*/*/log")]
    assert any("step 12 loss" in log and "step 1 loss" not in log for log in logs)  # it was resumed
    local = RunRequest(user.place / "local", land_every_s=None, progress=False)
    run_campaign(local.root, load_spec_file(user.spec).values(), request=local)
    assert values(user.root) == values(local.root) != []
