"""Submissions that ended before all trials were done: budget used up, or cancelled."""

from collections.abc import Callable, Collection, Mapping, Sequence

from runners.output import format_count
from runners.slurm.submissions import AT_WORK, SubmissionStatus


def endings(
    crews: Sequence[SubmissionStatus], left: Collection[str], members: Callable[[str], Collection[str]]
) -> tuple[str, ...]:
    """A sentence for each submission that has ended so and of whose trials some are `left`: nobody will take them.

    `members` are the trials of a submission. A trial counts for the latest submission that has it.
    """
    if not any(_ended_by_word(crew) for crew in crews):
        return ()
    found: list[str] = []
    seen: set[str] = set()
    for crew in sorted(crews, key=lambda crew: crew.record.submission, reverse=True):
        trials = set(members(crew.record.submission))
        mine = trials.intersection(left) - seen
        seen |= trials
        off = mine if crew.cancelled.all else mine & crew.cancelled.trials
        if off:
            found.append(called_off({crew.record.submission: len(off)}))
        if mine - off and crew.spent and not any(worker.standing in AT_WORK for worker in crew.workers):
            verb = "is" if len(mine - off) == 1 else "are"
            found.append(
                f"budget: {used_up(crew)} used; {format_count(len(mine - off), 'trial')} {verb} left; run again with "
                "another --budget"
            )
    return tuple(reversed(found))


def called_off(trials: Mapping[str, int]) -> str:
    """That so many trials of submissions were called off."""
    parts = [f"{format_count(count, 'trial')} of submission {name}" for name, count in trials.items()]
    return (
        f"called off: {', '.join(parts)}; `ablate run` goes on with {'it' if list(trials.values()) == [1] else 'them'}"
    )


def used_up(crew: SubmissionStatus) -> str:
    """`0.00102 of 0.001 GPU-h`."""
    unit = {"gpuh": "GPU-h", "cpuh": "CPU-h"}[crew.unit]
    return f"{crew.hours:.3g} of {(crew.record.budget or {})['hours']:g} {unit}"


def _ended_by_word(crew: SubmissionStatus) -> bool:
    return crew.spent or crew.cancelled.all or bool(crew.cancelled.trials)
