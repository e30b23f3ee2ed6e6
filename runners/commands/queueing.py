"""`ablate run --on slurm`: trials are queued, and if asked followed to their end."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runners.commands.options import Cluster
from runners.output import say, write
from runners.repeat import Repeat

if TYPE_CHECKING:
    from grid import Grid
    from runners.slurm.submit import Draft, Queued, Submitter

LEFT_ALONE = "no worker is left for these trials; `ablate status` says why, and the same command queues them again"


def run_on_slurm(
    spec: Path, root: Path, grids: "Sequence[Grid]", workers: int | None, repeat: Repeat, cluster: Cluster
) -> int:
    """Queue the missing trials of `grids`; the exit code."""
    from runners.budget import budget_hours
    from runners.slurm.submit import SubmitOptions
    from runners.specfile import cluster_of

    budget = budget_hours(cluster.budget) if cluster.budget is not None else None
    slurm = cluster.request(cluster_of(spec), workers)
    options = SubmitOptions(retry=repeat.retry, again=repeat.again, files=(spec.resolve(),), budget=budget)
    from runners.scheduler_news import Slurm as Scheduler
    from runners.slurm.submit import Submitter

    submitter = Submitter(root, grids, slurm, Scheduler(), options)
    if cluster.dry_run:
        write("\n".join(dry_run_lines(submitter.draft())))
        return 0
    if repeat.again:
        from runners.commands.running import give_back

        give_back(root, grids, repeat)
    queued = submitter.submit(lambda text: say(f"ablate: {text}"))
    for note in queued.draft.notes:
        say(f"ablate: {note}")
    say(queued_line(queued, root))
    return _follow(submitter, queued, root) if cluster.wait else 0


def dry_run_lines(draft: "Draft") -> Iterator[str]:
    """What would be queued, for people: counts, classes, remarks, scripts."""
    from runners.slurm.elsewhere import told

    already = told(draft.elsewhere, draft.wanted)
    if already:
        yield already
    if not draft.groups:
        yield "nothing is left to queue"
        return
    yield (
        f"{draft.trials} trials in {len(draft.classes)} classes, {draft.workers} workers in {len(draft.scripts)} "
        "calls of sbatch; nothing is written"
    )
    for found, group in zip(draft.classes, draft.groups, strict=True):
        needs = ", ".join(f"{name}={value}" for name, value in found.resources.items() if value is not None)
        yield f"  {found.name}: {len(group.trials)} trials on {found.workers} workers with {needs}"
    yield from (f"  {note}" for note in draft.notes)
    shown: set[str] = set()
    for script in draft.scripts:
        name = script.name.partition(" from ")[0]
        if name in shown:
            yield f"# {script.name}: as above, with workers counted from there"
            continue
        shown.add(name)
        yield f"# {script.name}"
        yield script.text


def queued_line(queued: "Queued", root: Path) -> str:
    """What was queued and where to look, in one line."""
    from runners.slurm.elsewhere import told

    already = told(queued.draft.elsewhere, queued.draft.wanted)
    if queued.record is None:
        return f"{already or f'nothing is left to train ({queued.done} were done before)'}; results in {root}"
    draft = queued.draft
    jobs = ", ".join(map(str, queued.record.jobs))
    plural = "s" if len(queued.record.jobs) > 1 else ""
    before = f"; {already}" if already else ""
    return (
        f"queued {draft.trials} trials on {draft.workers} workers (job{plural} {jobs}) as submission "
        f"{draft.submission}{before}; `ablate status` says how they are, `ablate watch` follows; results in {root}"
    )


def _follow(submitter: "Submitter", queued: "Queued", root: Path) -> int:
    from runners.commands.running import concluded
    from runners.landing import Landing
    from runners.slurm.follow import Following

    submissions = [*queued.draft.elsewhere.submissions, queued.draft.submission]
    following = Following(submitter.survey, queued.draft.wanted, submissions, submitter.scheduler)
    try:
        with Landing(root, 10.0, lambda text: say(f"ablate: {text}")) as landing:
            following.until_over()
            landing.once(wait=True)
    except KeyboardInterrupt:
        say("ablate: the workers go on without this shell; `ablate watch` follows again, `ablate cancel` stops them")
        return 130
    name = queued.record.submission if queued.record else None
    return concluded(following.result(submitter.survey, name), root, LEFT_ALONE)
