"""Training code of a user's own on a real cluster."""

from pathlib import Path

import own_experiment
from cluster.cluster import Cluster
from cluster.user import User, wait_until_over

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
