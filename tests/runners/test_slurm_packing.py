"""Packing: as many trials as memory and processors carry, never none, never more than there is."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from ablate.runners.execution import Local
from ablate.runners.slurm.worker.assignment import (
    CONTEXT_BYTES,
    MOST_SIDE_BY_SIDE,
    Packing,
    device_groups,
    side_by_side,
)

GIB = 1 << 30
sizes = st.integers(1, 1 << 42)


@given(sizes, sizes, st.integers(1, 256))
def test_what_is_packed_fits(trial: int, device: int, cpus: int) -> None:
    count = side_by_side(trial, device, cpus)
    assert 1 <= count <= min(cpus, MOST_SIDE_BY_SIDE)
    assert count == 1 or count * trial <= 0.9 * device
    if count < min(cpus, MOST_SIDE_BY_SIDE):  # and one more would not
        assert (count + 1) * trial > int(0.9 * device)


@given(st.lists(st.text("ab", min_size=1), max_size=9), st.integers(1, 4))
def test_every_device_is_in_one_group(devices: list[str], per_trial: int) -> None:
    groups = device_groups(devices, per_trial)
    together = [device for group in groups if group for device in group.split(",")]
    assert together == devices[: len(together)]
    assert len(devices) - len(together) < per_trial


def packing(groups: list[str | None], cpus: int, memory_bytes: int | None, said: list[str] | None = None) -> Packing:
    return Packing(groups, cpus, memory_bytes, [].append if said is None else said.append)


def test_a_packing_is_decided_once_by_the_first_that_says_what_it_needed() -> None:
    decided = packing([None], cpus=8, memory_bytes=10 * GIB)
    assert decided.grow(None) == []
    assert decided.grow(2 * GIB) == [None] * 3
    assert decided.grow(GIB) == []
    assert packing([None], cpus=2, memory_bytes=10 * GIB).grow(GIB) == [None]
    assert packing([None], cpus=8, memory_bytes=GIB).grow(2 * GIB) == []
    assert len(packing([None], cpus=4, memory_bytes=None).grow(1)) == 3  # all memory of this machine


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "nvidia-smi"
    lines = "0, GPU-11aa, 81920\n1, GPU-22bb, 40960\n2, GPU-33cc, 10240\n"
    program.write_text(f"#!/bin/sh\nprintf '{lines}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return program


def test_gpus_are_packed_by_the_smallest_of_the_task(nvidia_smi: Path) -> None:
    """The third, which is smaller, is somebody else's."""
    need, said = 9 * GIB - CONTEXT_BYTES, list[str]()
    lists: list[list[str | None]] = [["0", "1"], ["GPU-11aa", "GPU-22"], ["0,1"]]
    for groups in lists:
        assert packing(groups, 32, None, said).grow(need) == groups * 3  # uses 36 of 40 GiB
        assert packing(groups, 2 * len(groups), None, said).grow(need) == groups  # two processors for each
    assert packing(["2"], 32, None, said).grow(need) == []
    assert packing(["0"], 32, None, said).grow(need) == ["0"] * 7
    assert said == []
    for answer in ("exit 9", "echo 'No devices were found'", "printf '0, GPU-1, [N/A]\n'"):
        nvidia_smi.write_text(f"#!/bin/sh\n{answer}\n")
        assert packing(["0", "MIG-4"], 32, None, said).grow(GIB) == []
        assert "GPU 0, MIG-4" in said.pop()  # one trial at a time: its memory is not known


def test_a_machine_grows_by_devices() -> None:
    machine = Local(devices=["0"])
    machine.grow(["0", "1"])
    assert machine.workers == 3
