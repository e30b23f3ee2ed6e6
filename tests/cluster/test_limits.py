"""The limits that ablate reads are the limits that the cluster enforces."""

import pytest
from cluster.cluster import Cluster, ClusterBroken

from ablate.runners.slurm.submit.cluster_limits import arrays, read_limits


def test_what_a_cluster_has_is_read(cluster: Cluster) -> None:
    found = read_limits()
    assert (found.array_size, found.max_jobs) == (1001, 40_000)
    assert set(found.partitions) == {"debug", "short", "preempt", "urgent"}
    debug, short = found.partitions["debug"], found.partitions["short"]
    assert found.default_partition == debug
    assert (debug.state, debug.nodes, debug.cpus, debug.memory_mb, debug.gpus) == ("UP", 2, 2, 8000, {"toy": 2})
    assert (debug.max_time_s, short.max_time_s) == (None, 300)
    assert found.default_account == "research"
    assert {"research", "small"} <= set(found.accounts or ())
    assert {"normal", "few"} <= set(found.qualities)
    assert found.problems == ()


def test_the_largest_array_is_taken_and_one_that_is_larger_is_not(cluster: Cluster) -> None:
    before = read_limits()  # the controller keeps ended jobs for some minutes
    (size,) = arrays(1001, before)
    cluster.submit("true", "--hold", f"--array=0-{size - 1}", "-o", "/dev/null")
    assert size <= read_limits().queued.all <= before.queued.all + size  # ended jobs may be gone by now
    with pytest.raises(ClusterBroken, match="Invalid job array"):
        cluster.submit("true", "--hold", f"--array=0-{size}", "-o", "/dev/null")


@pytest.mark.parametrize(
    ("account", "qos", "room"),
    [("small", None, 4), ("research", "few", 3), (None, "few", 3)],
    ids=["account", "qos", "default-account"],
)
def test_as_many_tasks_as_there_is_room_for_are_taken_and_one_more_is_not(
    cluster: Cluster, account: str | None, qos: str | None, room: int
) -> None:
    options = [f"--account={account}"] * bool(account) + [f"--qos={qos}"] * bool(qos)
    one = ("--hold", *options, "-o", "/dev/null", "--array")
    assert read_limits().room(account, qos).tasks == room
    cluster.submit("true", *one, "0-0")
    left = read_limits().room(account, qos)
    assert left.tasks == room - 1
    with pytest.raises(ClusterBroken, match="job submit limit"):
        cluster.submit("true", *one, f"0-{left.tasks}")
    cluster.submit("true", *one, f"0-{left.tasks - 1}")
    assert read_limits().room(account, qos).tasks == 0


def test_the_limit_of_a_qos_replaces_that_of_the_account(cluster: Cluster) -> None:
    cluster.run("sacctmgr", "-i", "add", "qos", "many", "set", "MaxSubmitJobsPerUser=6")
    cluster.run("sacctmgr", "-i", "modify", "user", "where", "account=small", "set", "qos+=many")
    try:
        assert read_limits().room("small", "many").tasks == 6
        options = ("--hold", "--account=small", "--qos=many", "-o", "/dev/null")
        cluster.submit("true", *options, "--array=0-5")
        assert read_limits().room("small", "many").tasks == 0
        assert read_limits().room("small").tasks == 0
        with pytest.raises(ClusterBroken, match="job submit limit"):
            cluster.submit("true", *options)
    finally:
        cluster.run("scancel", "--qos=many")
        cluster.run("sacctmgr", "-i", "modify", "user", "where", "account=small", "set", "qos-=many")
        cluster.run("sacctmgr", "-i", "delete", "qos", "many")
