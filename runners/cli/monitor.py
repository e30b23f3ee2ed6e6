"""Commands that monitor the trials of a campaign: status, logs, cancel."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ablate.grid.errors import SpecError
from ablate.runners.cli.options import AnyGrid, Campaign, Cells, Flag, Json, OneTrial, Trials
from ablate.runners.cli.resolve import choose_grid, find_campaign, find_one, find_several, open_campaign, read_warnings
from ablate.runners.output import open_console, tell, write, write_json
from ablate.runners.result_stream import results
from ablate.store.files.layout import Layout

_MOST_INGEST_S = 1.0
"""Seconds for which `ablate status` reads what is new; it says what is left."""


def logs(
    *query: OneTrial,
    follow: Annotated[bool, Parameter(name=("--follow", "-f"), negative="")] = False,
    attempt: int | None = None,
    worker: Flag = False,
    campaign: Campaign = None,
) -> None:
    """Show the log of a trial: of an attempt, of all as they come, or of the worker.

    Parameters
    ----------
    follow
        Go on as it grows, from attempt to attempt, until the trial has ended.
    attempt
        One of its attempts; default the latest.
    worker
        The output of the cluster's task that ran the attempt instead.
    """
    from ablate.runners.monitoring.logs import LogFollower, describe_stored, find_attempt, in_words, worker_output

    if follow and worker:
        raise SpecError("--follow and --worker do not go together: a trial's own log is followed; leave one out")
    with open_campaign(campaign) as store:
        layout, trial = store.layout, find_one(store, query)
        state = None if follow else find_attempt(layout, trial, attempt)
        stored = None if state is None else describe_stored(store, trial, state)
    if state is None:
        _follow(layout, trial, attempt)
        with open_campaign(campaign) as store:
            tell(*filter(None, [describe_stored(store, trial, find_attempt(layout, trial, attempt))]))
        return
    path = worker_output(layout, state) if worker else layout.log(trial, state.attempt)
    tell(in_words(state))
    if not sum(map(results().write, LogFollower(layout, path).more())):
        tell(f"it has written nothing{'' if state.end else ' so far'}")
    tell(*filter(None, [stored]))


def _follow(layout: Layout, trial: str, attempt: int | None) -> None:
    from ablate.runners.monitoring.logs import follow, in_words

    for state, text in follow(layout, trial, attempt):
        if state is not None:
            tell(in_words(state))
        results().write(text)
        results().flush()


_SUBMISSION = "submission="


def cancel(*query: Trials, outdated: Flag = False, campaign: Campaign = None, as_json: Json = False) -> int:
    """Cancel what is queued or running: everything, or the trials of a query.

    `ablate run` goes on with it later. As a query, submission=ID is a whole submission.

    Parameters
    ----------
    outdated
        Only trials that are in no grid any more, because the spec was edited.
    """
    from ablate.runners.attempts.submission_record import runs_at_work
    from ablate.runners.backends.backend import Submissions
    from ablate.runners.monitoring.cancel import Cancelling, mark_cancelled
    from ablate.runners.monitoring.trial_locations import locate_trials

    backend = Submissions()
    submissions = [word.removeprefix(_SUBMISSION) for word in query if word.startswith(_SUBMISSION)]
    if len(submissions) not in (0, len(query)) or (outdated and query):
        raise SpecError("submission=ID or --outdated does not go together with other conditions; leave those out")
    if outdated or len(query) > len(submissions):
        from ablate.store.analysis.trial_query import select

        with open_campaign(campaign) as store:
            where = locate_trials(store, backend)
            cancelling = Cancelling(store.layout, where.submissions, where.runs, backend)
            cancelling.trials(where.outdated if outdated else select(store, query), where)
            notes = list(where.notes)
    else:  # without the store: a campaign of very many trials is cancelled at once
        layout = Layout(find_campaign(campaign))
        marked = mark_cancelled(layout, submissions)  # before the scheduler is asked, which may not answer for long
        statuses, notes = backend.list(layout)
        cancelling = Cancelling(layout, statuses, runs_at_work(layout), backend, marked)
        cancelling.cancel_submissions(submissions)
    if as_json:
        write_json("cancel", {"done": cancelling.done}, [*notes, *cancelling.problems])
    else:
        for line in cancelling.done:
            write(line)
        if not cancelling.done and not cancelling.problems:
            write(f"nothing {'of that ' if query or outdated else ''}is queued or running")
        tell(*notes, *cancelling.problems)
        if cancelling.done:
            tell("nothing is lost: `ablate run` goes on with these trials where they were saved")
    return 5 if cancelling.problems else 0


def status(
    *query: Cells,
    failures: Flag = False,
    watch: Flag = False,
    every: float | None = None,
    campaign: Campaign = None,
    grid: AnyGrid = None,
    as_json: Json = False,
) -> None:
    """Show the progress of each cell, the running trials and the failures.

    A query keeps cells, running trials and failures.

    Parameters
    ----------
    failures
        Show failures by kind instead: number of trials, hosts, time and advice. A query leaves out workers that took no
        trial.
    watch
        Show the whole campaign live, with the time left, until its last trial has ended or Ctrl-C. It reads and never
        holds anything up. Without a terminal it prints a line per change.
    every
        With --watch, seconds between looks at the files; default 2. The scheduler is asked once a minute.
    """
    if every is not None and not watch:
        raise SpecError("--every has no effect without --watch; leave it out, or give --watch too")
    if watch:
        if failures or query or grid is not None:
            raise SpecError("--watch shows the whole campaign, not a part; leave a query, --grid and --failures out")
        _watch(campaign, 2.0 if every is None else every, as_json=as_json)
    elif failures:
        show_failures(*query, campaign=campaign, grid=grid, as_json=as_json)
    else:
        _show_status(query, campaign, grid, as_json=as_json)


def _show_status(query: Sequence[str], campaign: Path | None, grid: str | None, *, as_json: bool) -> None:
    from ablate.runners.monitoring.status_text import read_status, write_status
    from ablate.runners.monitoring.trial_locations import locate_trials
    from ablate.runners.monitoring.unread_grids import find_unread
    from ablate.store.analysis.trial_query import select_planned

    with open_campaign(campaign, thorough=False, most_s=math.inf if query else _MOST_INGEST_S) as store:
        names = [name for name in store.grids() if grid in (None, name)]
        if not names and not find_unread(store, grid):
            choose_grid(store, grid)  # says what there is
        state = read_status(store, locate_trials(store, done=False), names, grid)
        state = state.keep(store, grid, select_planned(store, query)) if query else state
    if as_json:
        write_json("status", state.data(), state.warnings)
    else:
        write_status(state, every=bool(query))
        tell(*state.warnings)


def show_failures(*query: str, campaign: Path | None = None, grid: str | None = None, as_json: bool = False) -> None:
    """Show failures by kind; a query keeps trials, and leaves out workers that took none."""
    from ablate.runners.monitoring.failure_groups import failures, worker_rejections, write_groups

    with open_campaign(campaign) as store:
        name = None if grid is None else choose_grid(store, grid)
        groups = failures(store, name, find_several(store, query) if query else None)
        warnings = read_warnings(store, grid, quiet=as_json)
        refused = [] if query else worker_rejections(store.layout)
    if as_json:
        data = {"failures": [each._asdict() for each in groups], "refusals": [each._asdict() for each in refused]}
        write_json("failures", data, warnings)
        return
    write_groups([*groups, *refused])
    if not groups and not refused:
        write("nothing failed")


def _watch(campaign: Path | None, every: float, *, as_json: bool) -> None:
    from ablate.runners.backends.backend import Submissions
    from ablate.runners.monitoring.watch import show, views

    if not every > 0:
        raise SpecError(f"--every {every:g} is no time; give a number of seconds above 0")
    stream = views(find_campaign(campaign), Submissions(), every)
    try:
        if as_json:
            for view in stream:
                write_json("watch", view.data())
                results().flush()
        else:
            show(stream, open_console())
    except KeyboardInterrupt:
        tell("the grid goes on without being watched")
