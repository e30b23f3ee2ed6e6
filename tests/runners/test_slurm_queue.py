"""The output of SLURM's commands, in the forms of several versions."""

import os
import re

import pytest
from pretend_slurm import Fake

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.slurm.scheduler import seconds, task_names, user
from ablate.runners.slurm.submit.cluster_limits import (
    Association,
    Limits,
    Partition,
    QueuedTasks,
    arrays,
    associations,
    count_queued,
    gpus,
    partitions,
    qos_levels,
    read_limits,
)


def test_a_job_s_name_means_its_tasks() -> None:
    names = {
        "12": ["12"], "12_3": ["12_3"], "12_[3-5%2]": ["12_3", "12_4", "12_5"], "12_[3,5-6]": ["12_3", "12_5", "12_6"],
        "12_[0-8:4%1]": ["12_0", "12_4", "12_8"], "12.batch": [], "12_3.0": [], "12+1": [], "12_[3-": [], "": [],
    }  # fmt: skip
    assert {name: list(task_names(name)) for name in names} == names


def test_a_user_without_a_name_is_asked_for_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_001)
    assert user() == "4000000001"


def test_durations() -> None:
    durations = {
        "1-02:03:04": 93784, "365-00:00:00": 31536000, "08:00:00": 28800, "5:00": 300, "0:01": 1, "UNLIMITED": None,
        "NOT_SET": None, "Partition_Limit": None, "INVALID": None, "": None,
    }  # fmt: skip
    assert {text: seconds(text) for text in durations} == durations


def test_partitions_and_their_gpus_by_type() -> None:
    gres = {
        "gpu:2": {"": 2},
        "gpu:a100:4(S:0,1),gpu:h100:2,gpu:a100:1,shard:a100:8": {"a100": 5, "h100": 2},
        "craynetwork:4,gpu:tesla_v100-sxm2-16gb:8": {"tesla_v100-sxm2-16gb": 8},
        "(null)": {},
    }
    assert {text: gpus(text) for text in gres} == gres
    output = (
        "PartitionName=gpu AllowGroups=ALL AllowAccounts=a,b AllowQos=ALL Default=YES QoS=part_gpu MaxTime=2-00:00:00 "
        "Nodes=n[1-8] State=UP TotalCPUs=512 TotalNodes=8 TRES=cpu=512,node=8\n"
        "PartitionName=old AllowAccounts=ALL AllowQos=x Default=NO QoS=N/A MaxTime=UNLIMITED Nodes=m1 State=DRAIN "
        "TotalNodes=1\n"
    )
    nodes = "gpu|64|500000+|gpu:a100:4(S:0-1)\ngpu|32|250000|gpu:h100:8\nold|8|1000|(null)\n"
    devices = {"a100": 4, "h100": 8}
    assert partitions(output, nodes) == {
        "gpu": Partition("gpu", True, "UP", 172800, 8, 64, 500000, devices, limiting_qos="part_gpu"),
        "old": Partition("old", False, "DRAIN", None, 1, 8, 1000),
    }


def limits(**changes: object) -> Limits:
    found = {
        "max_array_size": 1001,
        "max_array_tasks": None,
        "max_jobs": 10_000,
        "partitions": {name: Partition(name, name == "gpu", "UP", None, 1) for name in ("gpu", "cpu")},
        "queued": QueuedTasks(30, {"small": 3, "big": 17}, {"normal": 18, "few": 2}, {"gpu": 20}),
    }
    return Limits(**{**found, **changes})


def test_workers_are_split_into_arrays() -> None:
    for tasks, changes, sizes in (
        (1001, {}, [1001]),
        (1002, {}, [501, 501]),
        (0, {}, []),
        (3, {"max_array_size": 0}, [1, 1, 1]),
        (25, {"max_array_tasks": 10}, [9, 8, 8]),
        (25, {"max_array_size": 5, "max_array_tasks": 10}, [5, 5, 5, 5, 5]),
    ):
        assert arrays(tasks, limits(**changes)) == sizes


RIGHTS = (Association("small", "", 4, ""), Association("big", "", None, "few"), Association("big", "cpu", 21, "normal"))
LEVELS = {"normal": None, "few": 3, "part": 25}


def test_the_room_in_the_queue_is_that_of_the_limit_that_counts() -> None:
    """The QOS of a partition comes first, and a full queue has no room."""
    given = {"associations": RIGHTS, "qualities": LEVELS}
    for tasks, words, asked in (
        (1, "QOS few", {}),
        (1, "account small", {"account": "small"}),
        (1, "QOS few", {"account": "small", "qos": "few"}),
        (9969, "MaxJobCount", {"qos": "normal"}),
        (4, "account big", {"qos": "normal", "partition": "cpu"}),
        (9969, "MaxJobCount", {"account": "unknown"}),
    ):
        room = limits(**given, default_account="big").room(**asked)
        assert (room.tasks, words in room.because) == (tasks, True)
    given["partitions"] = {"gpu": Partition("gpu", True, "UP", None, 1, limiting_qos="part")}
    assert limits(**given).room("small", "few").tasks == 5
    assert limits(**given, max_jobs=7).room("small", "few").tasks == 0
    assert limits().accounts is None
    assert limits(**given).accounts == ("small", "big")


def test_what_accounting_prints() -> None:
    text = "big|toy|small||4|\nbig|toy|big|cpu||few\nbig|elsewhere|big||9|\n"
    rights, default = associations(text, "toy")
    assert default == "big"
    assert rights == (Association("small", "", 4, ""), Association("big", "cpu", None, "few"))
    assert qos_levels("normal|\nfew|3\n") == {"normal": None, "few": 3}
    rows = "me|small|normal|gpu|PENDING\nme|big|few|gpu|RUNNING\nyou|big|few|cpu|PENDING\nme|big|few|gpu|COMPLETED\n"
    found = count_queued(rows, "me")
    assert found == QueuedTasks(4, {"small": 1, "big": 1}, {"normal": 1, "few": 1}, {"gpu": 2})


CONFIG = "ClusterName = toy\\nMaxArraySize = 11\\nMaxJobCount = 50\\nSchedulerParameters = max_array_tasks=5,x\\n"


def test_limits_are_read_where_numbers_are_not_enforced_or_accounting_is_away(fake: Fake) -> None:
    with pytest.raises(EnvironmentProblem, match="scontrol is not installed on this machine; log in to"):
        read_limits()
    shown = "PartitionName=gpu Default=YES State=UP MaxTime=1:00 TotalNodes=2 QoS=N/A"
    case = (
        f'case "$*" in *config*) printf "{CONFIG}AccountingStorageEnforce = associations\\n";; *) echo "{shown}";; esac'
    )
    fake("scontrol", case)
    fake("sinfo", "echo 'gpu|4|1000|gpu:x:2'")
    fake("squeue", "echo 'slurm_load_jobs error' >&2; exit 1")
    found = read_limits()
    assert (found.array_size, found.max_jobs, found.partitions["gpu"].gpus) == (5, 50, {"x": 2})
    assert [re.search("squeue|sacctmgr", problem)[0] for problem in found.problems] == ["squeue", "sacctmgr"]
    assert found.accounts is None
    fake("sacctmgr", 'case "$*" in *qos*) echo "normal|1";; *) echo "big|toy|big||2|";; esac')
    found = read_limits()
    assert found.accounts == ("big",)
    assert "50 jobs (MaxJobCount)" in found.room().because
    fake("scontrol", case.replace("= associations", "= limits"))
    assert read_limits().room().tasks == 1
