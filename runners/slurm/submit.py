"""Submitting a campaign's missing trials to SLURM: all that can be wrong is looked for first, then all of it is queued.

Jobs are queued held and released together, so until the record of a submission knows all of its jobs, none has begun;
whatever goes wrong before takes back what there is.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple, final

from grid import Grid
from grid.errors import EnvironmentProblem
from runners.environment import record
from runners.manifest import write_grid, write_submission
from runners.scheduler_news import Scheduler
from runners.slurm.arrays import job_name, logs
from runners.slurm.drafting import Draft, Drafter, SubmitOptions
from runners.slurm.elsewhere import half_submitted
from runners.slurm.queue import TaskId, ask, release, user
from runners.slurm.spec import Slurm
from runners.slurm.turn import turn
from runners.snapshot import write
from runners.snapshot_modules import user_imports
from runners.submission import Submission, job_data, write_submission_record
from runners.survey import Survey
from runners.worker import Job
from store.files import make_directory
from store.layout import Layout

__all__ = ["Draft", "Queued", "SubmitOptions", "Submitter"]


class Queued(NamedTuple):
    """What was queued."""

    draft: Draft
    record: Submission | None
    """None: nothing is left to queue."""
    done: int
    """Trials that were ok before."""


@final
class Submitter:
    """A campaign's grids and a request, looked at; nothing is written before `submit`.

    Raises:
        SpecError: a grid is invalid, or the request has no meaning here: an unknown partition, account, GPU.
        EnvironmentProblem: there is no SLURM here, or it does not answer.
    """

    def __init__(
        self, root: Path | str, grids: Sequence[Grid], slurm: Slurm, scheduler: Scheduler, options: SubmitOptions
    ) -> None:
        self._drafter = Drafter(root, grids, slurm, scheduler, options)
        self.layout: Layout = self._drafter.layout
        self.survey: Survey = self._drafter.survey
        self.scheduler = scheduler

    def draft(self) -> Draft:
        """What would be queued now.

        Raises:
            SpecError, EnvironmentProblem: SLURM would refuse it, or the campaign cannot take it.
        """
        return self._drafter.draft()

    def submit(self, told: Callable[[str], None]) -> Queued:
        """Queue what is missing. One shell at a time; of two, the second finds everything queued.

        Raises:
            SpecError, EnvironmentProblem: it was refused, and nothing of it is left.
        """
        self.draft()  # what is wrong is said before the campaign is touched
        with turn(self.layout, told) as certain:
            for remark in half_submitted(self.layout, certain=certain, cancel=_cancel_named):
                told(remark)
            draft = self._drafter.drafted()
            done = sum(trial.status == "ok" for trial in self.survey.trials)
            return Queued(draft, self._queue(draft) if draft.groups else None, done)

    def _queue(self, draft: Draft) -> Submission:
        found = self._record(draft)
        place = self.layout.submission(draft.submission)
        try:
            self._write(draft, found)
            jobs = self._submit_held(draft)
            known = iter(jobs)
            classes = tuple(
                replace(each, arrays=tuple(replace(array, job=next(known)) for array in each.arrays))
                for each in found.classes
            )
            found = replace(found, classes=classes)
            write_submission_record(self.layout, found)
            for job in jobs:
                release(TaskId(job))
        except BaseException:
            if place.exists():
                _cancel_named(job_name(draft.submission))
                shutil.rmtree(place)
            raise
        return found

    def _record(self, draft: Draft) -> Submission:
        options, slurm = self._drafter.options, self._drafter.slurm
        job = Job(
            self.layout.root,
            draft.submission,
            options.entry,
            files=tuple(Path(file).resolve() for file in options.files),
            retry=options.retry,
            again=options.again,
            modules=self.survey.cells.codes.modules,
            heartbeat_s=slurm.heartbeat_s,
            oom=slurm.oom,
        )
        snapshot = self._drafter.packed.snapshot.data() if self._drafter.packed else None
        unit = options.budget.unit.lower().replace("-", "") if options.budget else None
        return Submission(
            submission=draft.submission,
            machine="slurm",
            written=time.time(),
            job=job_data(job, snapshot),
            slurm=slurm.data(),
            snapshot=snapshot,
            environment=record(user_imports()),
            budget={"hours": options.budget.hours, "unit": unit} if options.budget else None,
            classes=draft.classes,
            scripts=dict(draft.scripts),
        )

    def _write(self, draft: Draft, found: Submission) -> None:
        for grid in self._drafter.grids:
            write_grid(self.layout, grid, self._drafter.lines.of(grid.name))
        lines = chain.from_iterable(self.survey.lines(group.trials) for group in draft.groups)
        write_submission(self.layout, draft.submission, lines)
        if self._drafter.packed is not None:
            write(self.layout, self._drafter.packed)
        make_directory(logs(self.layout, draft.submission))
        write_submission_record(self.layout, found)

    def _submit_held(self, draft: Draft) -> list[int]:
        made = self._drafter.arrays(draft.submission)
        return [made.submit_held(script.text) for script in draft.scripts]


def _cancel_named(name: str) -> None:
    """Cancel the jobs called so, whether or not their numbers are known."""
    said = ask("scancel", f"--name={name}", f"--user={user()}")
    if said.problem is not None:
        raise EnvironmentProblem(
            f"jobs called {name} may be queued, held, and were not cancelled ({said.problem}); "
            f"later, scancel --name={name} does it"
        )
