"""The output of SLURM's commands, in the forms of several versions."""

import os

import pytest
from pretend_slurm import Fake

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.backends.slurm.scheduler import seconds, task_names, user
from ablate.runners.backends.slurm.submit.cluster_limits import Limits, Partition, arrays, partitions, read_limits


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


def test_partitions() -> None:
    output = (
        "PartitionName=gpu AllowGroups=ALL AllowAccounts=a,b AllowQos=ALL Default=YES QoS=part_gpu MaxTime=2-00:00:00 "
        "Nodes=n[1-8] State=UP TotalCPUs=512 TotalNodes=8 TRES=cpu=512,node=8\n"
        "PartitionName=old AllowAccounts=ALL AllowQos=x Default=NO QoS=N/A MaxTime=UNLIMITED Nodes=m1 State=DRAIN "
        "TotalNodes=1\n"
    )
    gpu, old = Partition("gpu", True, 172800, 8, 64), Partition("old", False, None, 1, 8)
    assert partitions(output, "gpu|64+\ngpu|32\nold|8\n") == {"gpu": gpu, "old": old}
    limits = Limits(1001, {"gpu": gpu, "old": old})
    assert [limits.partitions_of(names) for names in (None, "old,gpu,old", "moon")] == [[gpu], [old, gpu], []]


def test_workers_are_split_into_arrays() -> None:
    for tasks, most, sizes in ((1001, 1001, [1001]), (1002, 1001, [501, 501]), (0, 5, []), (25, 10, [9, 8, 8])):
        assert arrays(tasks, Limits(most, {})) == sizes


def test_the_size_of_arrays_is_the_smaller_of_two_limits(fake: Fake) -> None:
    with pytest.raises(EnvironmentProblem, match=r"scontrol is not installed on this machine, .*; log in to"):
        read_limits()
    fake("sinfo", "echo 'gpu|4'")
    shown = "PartitionName=gpu Default=YES State=UP MaxTime=1:00 TotalNodes=2 QoS=N/A"
    for size, options, most in ((11, "max_array_tasks=5,x", 5), (4, "(null)", 4), (0, "x,max_array_tasks=5", 1)):
        config = f"ClusterName = toy\\nEpilog = \\nMaxArraySize    = {size}\\nSchedulerParameters = {options}\\n"
        fake("scontrol", f'case "$*" in *config*) printf "{config}";; *) echo "{shown}";; esac')
        assert read_limits() == Limits(most, {"gpu": Partition("gpu", True, 60, 2, 4)})
