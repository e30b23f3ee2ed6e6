"""Describe what SLURM has queued, or would queue."""

from collections.abc import Iterator

from ablate.grid.durations import format_duration
from ablate.runners.backends.slurm.spec import Resources
from ablate.runners.backends.slurm.submit.already_queued import describe_already_queued
from ablate.runners.backends.slurm.submit.draft import Draft
from ablate.runners.backends.slurm.submit.submit import SubmittedJobs
from ablate.runners.output import format_count


def dry_run_lines(draft: Draft) -> Iterator[str]:
    """Describe a submission: counts, classes, remarks, scripts."""
    if not draft.groups:
        yield _all_queued(draft) or "nothing is left to queue"
        return
    already = describe_already_queued(draft.elsewhere, draft.wanted)
    if already:
        yield already
    yield (
        f"{format_count(draft.trials, 'trial')} in {format_count(len(draft.classes), 'class', 'classes')}, "
        f"{format_count(draft.workers, 'worker')} in {format_count(len(draft.scripts), 'call', 'calls')} of sbatch; "
        "nothing is written"
    )
    for each, group in zip(draft.classes, draft.groups, strict=True):
        counts = f"{format_count(len(group.trials), 'trial')} on {format_count(each.workers, 'worker')}"
        yield f"  {each.name}: {counts}{' each' if each.workers > 1 else ''} with {worker_words(group.resources)}"
    yield from (f"  {note}" for note in draft.notes)
    shown: set[str] = set()
    for array, script in draft.scripts.items():
        name = array.partition(" from ")[0]
        if name in shown:
            yield f"# {array}: as above, with workers counted from there"
            continue
        shown.add(name)
        yield f"# {array}"
        yield script


def worker_words(resources: Resources) -> str:
    """Describe a worker: `2 h100 GPUs, 4 trials on each GPU, 9 cores, 16 GB, for 4 h 00 min, on gpu`."""
    kind = f"{resources.gpu_type} " if resources.gpu_type else ""
    parts = [format_count(resources.gpus, f"{kind}GPU")] if resources.gpus else []
    if resources.per_trial > 1:
        parts.append(f"{resources.per_trial} {'GPUs' if resources.gpus else 'processes'} for a trial")
    elif resources.per_gpu != 1:
        parts.append(f"{resources.per_gpu} trials {'on each GPU' if resources.gpus else 'side by side'}")
    parts.append(format_count(resources.cpus, "core"))
    if resources.nodes > 1:
        parts.append(f"each of {resources.nodes} nodes")
    if resources.mem is not None:
        parts.append(f"{resources.mem / 1024:g} GB" if resources.mem % 1024 == 0 else f"{resources.mem} MB")
    parts.append(f"for {format_duration(resources.time * 60)}")
    if resources.partition is not None:
        parts.append(f"on {resources.partition}")
    return ", ".join(parts)


def queued_line(queued: SubmittedJobs) -> str:
    """Describe the submission and the commands that follow it, in one line."""
    draft = queued.draft
    if queued.record is None:
        were = "was" if queued.done == 1 else "were"
        return _all_queued(draft) or f"nothing is left to train ({queued.done} {were} done before)"
    already = describe_already_queued(draft.elsewhere, draft.wanted)
    jobs = f"job{'s' if len(queued.record.jobs) > 1 else ''} {', '.join(map(str, queued.record.jobs))}"
    return (
        f"queued {format_count(draft.trials, 'trial')} on {format_count(draft.workers, 'worker')} ({jobs}) as "
        f"submission {draft.submission}{f'; {already}' if already else ''}; "
        "`ablate status` says how they are, `ablate status --watch` follows"
    )


def _all_queued(draft: Draft) -> str | None:
    """Say that all missing trials are queued, and how to change their workers; None if no trial is missing."""
    if not draft.wanted:
        return None
    submissions = sorted(draft.elsewhere.submissions)
    name = f"submission{'s' if len(submissions) > 1 else ''} {', '.join(submissions)}"
    count = len(draft.wanted)
    trials = f"all {count} missing trials are" if count > 1 else "the one missing trial is"
    return (
        f"nothing to do: {trials} queued in {name}; to change what workers ask for, run `ablate cancel` "
        "(running trials save), then this command again"
    )
