"""Requests to a cluster: times, memory, classes of trials, and the number of workers of each class."""

from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError
from toy_campaign import toy_grid

from ablate.grid import spec_error
from ablate.grid.errors import SpecError
from ablate.runners.backends.slurm.spec import Needs, Slurm, mebibytes, minutes, recorded_request
from ablate.runners.backends.slurm.submit.resource_classes import Demands, Group
from ablate.runners.backends.slurm.submit.workload import Load, at_once, split, workers
from ablate.runners.planning.worklist import collect_cells, list_trials
from ablate.store.files.layout import Layout

TIMES = {"90m": 90, "8h": 480, "1d12h": 2160, "08:00:00": 480, "1-12:00:00": 2160, "00:00:30": 1, "1h30m": 90}
MEMORY = {"500M": 500, "16G": 16384, "16GB": 16384, "1T": 1 << 20}


def test_times_and_memory_as_people_and_slurm_write_them() -> None:
    """SLURM reads 10:30 as minutes and seconds, and 8 as minutes, so both are refused."""
    assert {text: minutes(text) for text in TIMES} == TIMES
    assert {text: mebibytes(text) for text in MEMORY} == MEMORY
    for text in ("", "8", "0m", "10:30", "8 h", "h", "-1h", "1h1d", "forever"):
        with pytest.raises(ValueError, match="is no time limit; write 90m"):
            minutes(text)
    for text in ("16", "0G", "16g", "1.5G", "G", ""):
        with pytest.raises(ValueError, match="is no memory; write 500M"):
            mebibytes(text)


@given(st.integers(1, 10_000_000))
def test_a_time_in_slurms_own_form_is_read_back(total: int) -> None:
    days, rest = divmod(total, 1440)
    assert minutes(f"{days}-{rest // 60:02d}:{rest % 60:02d}:00") == total


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"partition": "a b"}, "one word"),
        ({"time": "2m"}, "save 120 s before the time limit, and that is 2 min"),
        ({"needs": ({"where": {}},)}, "where is empty"),
        ({"extra": {"cpus_per_task": "1"}}, "extra cannot have 'cpus_per_task'"),
        ({"extra": {"comment-x": "a\nb"}}, "extra"),
        ({"extra": {"no_requ": ""}}, "extra cannot have 'no_requ'"),  # sbatch takes shortened options
        ({"extra": {"mem_per_gpu": "1G"}}, "extra cannot have 'mem_per_gpu'"),
        ({"mem": "4G", "extra": {"mem_per_cpu": "2G"}}, "both ask for memory; leave one of them out"),
        ({"nodes": 2, "per_gpu": 2}, "packs several into it; leave one of them out"),
        ({"nodes": 2, "gpu_option": "gpus"}, "say gpu_option='gpus-per-node'"),
        ({"gpus": 0, "gpu_type": "h100"}, "gpu_type='h100' asks for GPUs and gpus=0 for none"),
        ({"gpus": 0, "needs": ({"where": {"steps": 1}, "gpu_type": "a100"},)}, "gpu_type='a100' asks for GPUs"),
        ({"partitoin": "gpu"}, "did you mean 'partition'"),
        ({"per_gpu": "auto"}, "per_gpu=4"),
        ({"needs": ({"where": {"steps": 1}, "per_gpu": "auto"},)}, "per_gpu=4"),
        ({"oom": "bigger"}, "mem"),
    ],
)
def test_a_request_without_meaning_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Slurm(**fields)
    assert words in str(spec_error(caught.value, "Slurm"))


def test_extra_takes_other_options_and_a_request_survives_its_record() -> None:
    names = ("reservation", "time-min", "gres-flags", "nodelist", "comment", "job_name", "export")
    extra = dict.fromkeys(names, "x")
    request = Slurm(time="8h", needs=(Needs(where={"model.width": 64}, mem="4G"),), extra=extra)
    assert request.extra == extra
    assert Slurm.model_validate(request.data()) == request


def test_a_recorded_request_of_an_earlier_release_is_read_without_what_was_removed() -> None:
    needs = {"where": {"steps": 1}, "mem": "8G"}
    recorded = {"gpus": 2, "per_gpu": "auto", "oom": "bigger", "needs": [{**needs, "per_gpu": "auto"}]}
    assert recorded_request(recorded) == Slurm(gpus=2, needs=(Needs(**needs),))


CHANGES = {
    "partition": st.just("old"), "time": st.just("1h"), "gpus": st.just(2), "gpu_type": st.just("a100"),
    "cpus": st.just(3), "mem": st.just("1G"), "per_gpu": st.just(2),
}  # fmt: skip


@given(st.fixed_dictionaries({}, optional=CHANGES))
def test_needs_replace_the_fields_that_they_set_and_no_others(given: dict[str, Any]) -> None:
    slurm = Slurm(partition="gpu", mem="8G", workers=4, setup=("true",))
    assert slurm.with_needs(Needs(where={"steps": 1}, **given)) == slurm.changed(**given)


def group_trials(slurm: Slurm, tmp_path: Any, **base: Any) -> list[Group]:
    grid = toy_grid(**base)
    demands = Demands(slurm)
    found = list_trials(Layout(tmp_path), [grid], collect_cells([grid], demands.add_cell))
    demands.check()
    return demands.groups(found.trials)


def test_trials_of_one_need_are_one_class(tmp_path: Any) -> None:
    (group,) = group_trials(Slurm(gpus=1, per_gpu=3, time="8h"), tmp_path)
    assert (group.name, group.resources.cpus, group.resources.slots, len(group.trials)) == ("all", 4, 3, 6)


def test_needs_select_trials_by_paths_and_values(tmp_path: Any) -> None:
    for where in ({"operator": "rising"}, {"operator.kind": "rising"}, {"operator.rate": 1.1}):
        needs = Needs(where={**where, "steps": 20}, mem="8G", gpus=0)
        groups = group_trials(Slurm(gpu_type="h100", needs=(needs,)), tmp_path)
        others, chosen = sorted(groups, key=lambda group: group.name != "all")
        assert {trial.operator for trial in others.trials} == {"falling"}
        assert {trial.operator for trial in chosen.trials} == {"rising"}
        seen = [(each.resources.mem, each.resources.gpus, each.resources.gpu_type) for each in (chosen, others)]
        assert seen == [(8192, 0, None), (None, 1, "h100")]
    with pytest.raises(SpecError, match=r"fits no trial.*'widht' is not a field of ToyTrial"):
        group_trials(Slurm(needs=(Needs(where={"widht": 1}, mem="1G"),)), tmp_path)
    # the first that fits counts, and equal resources are one class
    first, second = Needs(where={"operator": "rising"}, mem="8G"), Needs(where={"steps": 20}, mem="8G")
    (group,) = group_trials(Slurm(needs=(first, second)), tmp_path)
    assert sorted(group.name.split(" or ")) == ["operator=rising", "steps=20"]
    assert len(group.trials) == 6


@pytest.mark.parametrize(
    ("asked", "ranks", "expected"),
    [
        ({"gpus": 8, "per_gpu": 2}, 4, (8, 2, None)),
        ({"gpus": 6, "per_gpu": 2}, 4, (8, 2, None)),
        ({"gpus": 0, "per_gpu": 2}, 2, (0, 1, None)),
        ({"gpus": 1, "cpus": 3, "mem": "2G"}, 4, (4, 1, (12, 8192))),
        ({"gpus": 2, "cpus": 5, "mem": "64G"}, 3, (3, 1, (8, 96 * 1024))),
    ],
)
def test_trials_over_several_gpus_get_workers_with_a_multiple_and_memory_and_cores_in_proportion(
    tmp_path: Any, asked: dict[str, Any], ranks: int, expected: tuple[Any, ...]
) -> None:
    (group,) = group_trials(Slurm(**asked), tmp_path, gpus=ranks)
    resources, (gpus, slots, scaled) = group.resources, expected
    assert (resources.gpus, resources.slots) == (gpus, slots)
    assert scaled in (None, (resources.cpus, resources.mem))


@pytest.mark.parametrize(
    ("gpus", "ranks", "expected"),
    [(1, 4, (2, 3)), (2, 4, (2, 3)), (0, 2, (0, 2)), (1, 1, None), (1, 3, None), (4, 4, None), (0, 1, None)],
)
def test_a_trial_on_two_nodes_has_half_of_its_gpus_on_each(
    tmp_path: Any, gpus: int, ranks: int, expected: tuple[int, int] | None
) -> None:
    if expected is None:
        with pytest.raises(SpecError, match=f"execution.gpus={ranks} does not fill nodes=2 .* say execution.gpus="):
            group_trials(Slurm(nodes=2, gpus=gpus), tmp_path, gpus=ranks)
        return
    (group,) = group_trials(Slurm(nodes=2, gpus=gpus), tmp_path, gpus=ranks)
    resources = group.resources
    assert (resources.gpus, resources.cpus, resources.nodes, resources.slots) == (*expected, 2, 1)


LOADS = st.builds(
    Load,
    trials=st.integers(1, 500),
    slots=st.integers(1, 8),
    limit_s=st.floats(60, 1e6),
    seconds=st.one_of(st.none(), st.floats(0.1, 1e8)),
)


@given(st.lists(LOADS, min_size=1, max_size=5), st.one_of(st.none(), st.integers(1, 300)))
def test_no_class_without_a_worker_and_no_worker_without_a_trial(loads: list[Load], asked: int | None) -> None:
    found = workers(loads, asked)
    assert all(1 <= size <= load.most for size, load in zip(found, loads, strict=True))
    if asked is not None:
        assert sum(found) == max(len(loads), min(asked, sum(load.most for load in loads)))


@given(LOADS)
def test_workers_are_filled_to_half_of_their_time(load: Load) -> None:
    (size,) = workers([load], None)
    if load.seconds is not None and size < load.most:
        assert load.seconds / load.slots / size <= load.limit_s / 2 * 1.000001
    if load.seconds is not None and size > 1:
        assert load.seconds / load.slots / (size - 1) > load.limit_s / 2 * 0.999999
    assert workers([Load(100, 1, 3600.0, 30_000.0), Load(100, 1, 3600.0, 10_000.0)], 40) == [30, 10]


@given(st.lists(st.integers(1, 1001), min_size=1, max_size=8), st.one_of(st.none(), st.integers(1, 2000)))
def test_arrays_share_the_workers_that_run_at_once(sizes: list[int], limit: int | None) -> None:
    found = at_once(sizes, limit)
    assert all(1 <= each <= size for each, size in zip(found, sizes, strict=True))
    assert sum(found) == (sum(sizes) if limit is None else max(len(sizes), min(limit, sum(sizes))))


@given(st.integers(0, 200), st.lists(st.floats(0.1, 1e3), min_size=1, max_size=6))
def test_parts_are_in_the_ratio_of_the_weights(total: int, weights: list[float]) -> None:
    found = split(total, weights, [1000] * len(weights))
    for part, weight in zip(found, weights, strict=True):
        fair = total * weight / sum(weights)
        assert part <= max(1, fair + 1)
