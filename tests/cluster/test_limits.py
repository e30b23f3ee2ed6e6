"""The room in the queue that `sbatch --test-only` tells is the room that there is."""

import pytest
from cluster.cluster import Cluster, ClusterBroken
from cluster.user import User

from ablate.runners.backends.slurm.spec import Slurm
from ablate.runners.backends.slurm.submit.cluster_limits import Partition, read_limits
from ablate.runners.backends.slurm.submit.job_arrays import Arrays

SUBMISSION = "20260101T000000-000000"


def test_what_a_cluster_has_is_read(cluster: Cluster) -> None:
    found = read_limits()
    assert found.array_size == 1001
    assert set(found.partitions) == {"debug", "short", "preempt", "urgent"}
    assert found.partitions["debug"] == Partition("debug", True, None, 2, 2)
    assert found.partitions["short"] == Partition("short", False, 300, 2, 2)


@pytest.mark.parametrize(
    ("account", "qos", "room"),
    [("small", None, 4), ("research", "few", 3), (None, "few", 3), (None, None, 1001)],
    ids=["account", "qos", "default-account", "array"],
)
def test_as_many_tasks_as_there_is_room_for_are_taken_and_one_more_is_not(
    cluster: Cluster, user: User, account: str | None, qos: str | None, room: int
) -> None:
    options = [f"--account={account}"] * bool(account) + [f"--qos={qos}"] * bool(qos)
    one = ("--hold", *options, "-o", "/dev/null", "--array")
    request = Slurm(account=account, qos=qos, gpus=0, time="30m")
    arrays = Arrays(user.layout, SUBMISSION, request, [], single=False)
    script = "\n".join(["#!/bin/bash", *(f"#SBATCH {each}" for each in ("--output=/dev/null", *options)), "true", ""])
    assert arrays.room(script, 1001).tasks == room
    cluster.submit("true", *one, "0-0")
    left = arrays.room(script, room).tasks
    assert left == (room - 1 if room < 1001 else room)
    with pytest.raises(ClusterBroken, match=r"job submit limit|Invalid job array"):
        cluster.submit("true", *one, f"0-{left}")
    cluster.submit("true", *one, f"0-{left - 1}")
    if room < 1001:
        assert arrays.room(script, 1).tasks == 0
