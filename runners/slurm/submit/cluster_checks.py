"""What a cluster cannot give, said before anything is queued: each problem one sentence with what there is."""

from collections.abc import Iterable, Sequence
from typing import NoReturn

from grid.errors import SpecError
from grid.suggestions import suggest_name
from runners.output import duration
from runners.slurm.spec import Slurm
from runners.slurm.submit.cluster_limits import Limits, Partition
from runners.slurm.worker_resources import Resources


def require_allowed(slurm: Slurm, wanted: Sequence[Resources], limits: Limits) -> None:
    """Refuse what is not there; what only sbatch knows, it says itself.

    Raises:
        SpecError: a partition, account, QOS or GPU type that does not exist, or more than a node or a partition has.
    """
    _require_one_of("account", slurm.account, limits.accounts, "your accounts")
    _require_one_of("qos", slurm.qos, limits.qualities or None, "QOS here")
    for resources in wanted:
        _require_a_partition_for(resources, limits)


def _require_a_partition_for(resources: Resources, limits: Limits) -> None:
    """Of several partitions one must do: SLURM takes the first that has room and allows it."""
    refusals = []
    for place in partitions_of(resources.partition, limits):
        try:
            _require_time(resources, place)
            _require_gpus(resources, place, limits)
            _require_at_most("cpus", resources.cpus, place.cpus, place)
            _require_at_most("mem", resources.mem or 0, place.memory_mb, place)
        except SpecError as error:
            refusals.append(error)
        else:
            return
    if len(refusals) > 1:
        raise SpecError(f"none of the partitions takes the workers: {' / '.join(map(str, refusals))}")
    raise refusals[0]


def partitions_of(names: str | None, limits: Limits) -> list[Partition]:
    """The partitions called `names`, as SLURM lists them with commas, or the one of jobs that name none.

    Raises:
        SpecError: one does not exist.
    """
    if names is None:
        found = limits.default_partition
        if found is None:
            raise SpecError(f"this cluster has no default partition; choose one of {', '.join(limits.partitions)}")
        return [found]
    for name in names.split(","):
        _require_one_of("partition", name, limits.partitions, "partitions here")
    return [limits.partitions[name] for name in dict.fromkeys(names.split(","))]


def _require_one_of(flag: str, given: str | None, known: Iterable[str] | None, they: str) -> None:
    if given is None or known is None:
        return
    names = sorted(known)
    if given not in names:
        listed = ", ".join(names) or "none"
        raise SpecError(f"there is no {flag} {given!r} for you; {they}: {listed}{suggest_name(given, names)}")


def _require_time(resources: Resources, place: Partition) -> None:
    if place.max_time_s is not None and resources.time * 60 > place.max_time_s:
        raise SpecError(
            f"partition {place.name} allows {duration(place.max_time_s)} and workers are to have "
            f"{duration(resources.time * 60)}; lower --time, workers go on in a new job, or choose another partition"
        )


def _require_gpus(resources: Resources, place: Partition, limits: Limits) -> None:
    if not resources.gpus:
        return
    if not place.gpus:
        others = [each.name for each in limits.partitions.values() if each.gpus]
        there = f"; those with GPUs: {', '.join(others)}" if others else "; no partition here has any"
        raise SpecError(f"partition {place.name} has no GPUs{there}; --gpus 0 trains on the CPU")
    if resources.gpu_type is not None and resources.gpu_type not in place.gpus:
        known = sorted(filter(None, place.gpus))
        listed = f"it has {', '.join(known)}" if known else "its GPUs have no type, leave --gpu-type out"
        near = suggest_name(resources.gpu_type, known)
        raise SpecError(f"partition {place.name} has no GPU of type {resources.gpu_type!r}; {listed}{near}")
    most = place.gpus[resources.gpu_type] if resources.gpu_type else max(place.gpus.values())
    if resources.gpus > most:
        why = f" (trials over {resources.per_trial} GPUs)" if resources.per_trial > 1 else ""
        _refuse("gpus", f"{resources.gpus}{why}", most, place)


def _require_at_most(flag: str, wanted: int, most: int, place: Partition) -> None:
    if most and wanted > most:
        unit = " MiB" if flag == "mem" else ""
        _refuse(flag, f"{wanted}{unit}", most, place)


def _refuse(flag: str, wanted: str, most: int, place: Partition) -> NoReturn:
    what = {"gpus": "GPUs", "cpus": "cores", "mem": "MiB of memory"}[flag]
    raise SpecError(
        f"the largest node of partition {place.name} has {most} {what}, and a worker is to have {wanted}; "
        f"lower --{flag}, or choose another partition"
    )
