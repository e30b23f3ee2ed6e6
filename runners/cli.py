"""The command `ablate`: it chooses and acts; what an experiment is, the spec file says.

Everything heavy is imported inside the command that needs it.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.exceptions import CycloptsError

from runners.output import say, write, write_frame, write_json, write_table
from runners.repeat import NO_REPEAT, Repeats

if TYPE_CHECKING:
    from runners.run import RunResult

HELP = """Ablation grids for Transformer attention: from a Python spec to a verdict.

Exit codes: 0 done; 1 internal error; 2 usage or an invalid spec; 3 not found; 4 some trials failed; 5 the environment
lacks something; 6 stored data cannot be read; 130 interrupted, the same command goes on.
Results go to stdout, progress to stderr. --debug shows the traceback of an error.
"""

app = App(name="ablate", help=HELP, version=lambda: version("ablate"), result_action="return_value")

Json = Annotated[bool, Parameter(name="--json", negative="")]
Csv = Annotated[bool, Parameter(name="--csv", negative="")]


@app.command
def plan(
    spec: Path,
    /,
    *,
    grid: str | None = None,
    campaign: Path | None = None,
    workers: int | None = None,
    repeat: Repeats = NO_REPEAT,
    as_json: Json = False,
) -> int:
    """Show what a spec file would run: cells, keys, pruned cells, parameters, time. Writes nothing.

    Parameters
    ----------
    spec
        A Python file that defines grids.
    grid
        One of its grids; default all.
    campaign
        Where it would run; default campaigns/<name of the file>.
    workers
        For how many worker processes time is estimated; default one per core.
    as_json
        Print JSON.
    """
    from runners.finding import campaign_for, choose_grids, worker_count
    from runners.plan import PlanOptions, plan_campaign
    from runners.plan_text import plan_data, plan_lines
    from runners.specfile import load_spec_file
    from runners.stopwatch import seconds_of

    grids = choose_grids(load_spec_file(spec), grid, one=False)
    from runners.training import train
    from runners.trial import parameters

    options = PlanOptions(
        workers=worker_count(workers),
        retry=repeat.retry,
        again=repeat.again,
        parameters=parameters,
        seconds=lambda trial: seconds_of(trial, train),
    )
    found = plan_campaign(campaign_for(spec, campaign), grids, options)
    if as_json:
        write_json("plan", plan_data(found))
    else:
        write("\n".join(plan_lines(found)))
    return 0


@app.command
def run(
    spec: Path,
    /,
    *,
    grid: str | None = None,
    campaign: Path | None = None,
    on: Literal["local", "inline"] = "local",
    workers: int | None = None,
    repeat: Repeats = NO_REPEAT,
) -> int:
    """Train every trial of a grid that the campaign does not have yet. Safe to repeat.

    Parameters
    ----------
    spec
        A Python file that defines grids.
    grid
        Which of its grids, when it has several.
    campaign
        Directory of the results; default campaigns/<name of the file>.
    on
        local: warm worker processes of one thread each; inline: in this process.
    workers
        Worker processes; default one per core.
    """
    from grid.errors import SpecError
    from runners.finding import campaign_for, choose_grids, worker_count
    from runners.lost import give_back_unreadable
    from runners.machines import Inline, Local, Machine
    from runners.run import RunOptions, run_campaign
    from runners.specfile import load_spec_file

    if on == "inline" and workers is not None:
        raise SpecError("--workers is for --on local; inline trains in this process, one trial at a time")
    root = campaign_for(spec, campaign)
    grids = choose_grids(load_spec_file(spec), grid, one=True)
    machine: Machine = Inline() if on == "inline" else Local(worker_count(workers))
    if repeat.again:
        given_back = give_back_unreadable(root, [each.name for each in grids])
        if given_back:
            say(f"ablate: {given_back} finished trials have no readable result and are trained again")
    options = RunOptions(retry=repeat.retry, again=repeat.again, files=(spec.resolve(),))
    return _concluded(run_campaign(root, grids, machine, options), root)


def _concluded(result: "RunResult", root: Path) -> int:
    """Say what became of a run; its exit code."""
    for problem in result.problems:
        say(f"ablate: {problem}")
    counted = {
        "trained": result.ok,
        "failed": result.failed,
        "not finished, the same command goes on with them": result.stopped,
        "were done before": result.skipped,
        "of these ran other code (--again trains them again)": result.skipped_other_code,
        "failed before and were not tried again (--retry does)": result.skipped_failed,
    }
    say("; ".join(f"{count} {what}" for what, count in counted.items() if count) + f"; results in {root}")
    if result.interrupted:
        return 130
    if result.stopped:
        say("ablate: the code or the spec file changed while the run went on; run the same command again")
    return 4 if result.failed or result.skipped_failed or result.stopped else 0


@app.command
def status(*, campaign: Path | None = None, grid: str | None = None, as_json: Json = False) -> int:
    """How far a campaign is, cell by cell, and what failed.

    Parameters
    ----------
    campaign
        The campaign directory; default the only one below campaigns/.
    grid
        One of its grids; default all.
    as_json
        Print JSON.
    """
    from runners.finding import choose_grid, find_campaign
    from runners.status_text import read_status, write_status
    from store.store import Store

    with Store.open(find_campaign(campaign)) as store:
        names = store.grids() if grid is None else [choose_grid(store, grid)]
        found = read_status(store, names, grid)
    if as_json:
        write_json("status", found.data(), found.warnings)
    else:
        write_status(found)
    return 0


@app.command
def table(*, campaign: Path | None = None, grid: str | None = None, as_json: Json = False, as_csv: Csv = False) -> int:
    """The verdict table: every cell against the grid's baseline, paired by seed.

    Parameters
    ----------
    campaign
        The campaign directory; default the only one below campaigns/.
    grid
        One of its grids, when it has several.
    as_json
        Print JSON.
    as_csv
        Print CSV.
    """
    from runners.finding import choose_grid, find_campaign
    from runners.mixed import warn_of_mixtures
    from store.store import Store
    from store.verdicts import verdicts

    with Store.open(find_campaign(campaign)) as store:
        name = choose_grid(store, grid)
        header = store.grid(name)
        found = verdicts(store, name)
        warn_of_mixtures(store, [name], say)
    if not as_json and not as_csv:
        measure = header["measure"]
        point = ", ".join(f"{axis}={value:g}" for axis, value in measure["point"].items())
        unit = f" in {measure['unit']}" if measure.get("unit") else ""
        write(f"{name}: {measure['name']}{f' at {point}' if point else ''}{unit}, {measure['better']} is better")
    shown = {
        "label": "cell",
        "pairs": "pairs",
        "value": measure_heading(header),
        "percent": "difference %",
        "low_percent": "low",
        "high_percent": "high",
        "p_holm": "p (Holm)",
        "verdict": "verdict",
        "reason": "because",
    }
    write_frame("table", found, as_json=as_json, as_csv=as_csv, shown={k: v for k, v in shown.items() if k in found})
    return 0


def measure_heading(header: dict[str, dict[str, str]]) -> str:
    """How the values of a grid's measure are averaged over seeds, as a column's heading."""
    return "geometric mean" if header["measure"]["scale"] == "log" else "mean"


@app.command
def sql(query: str, /, *, campaign: Path | None = None, as_json: Json = False, as_csv: Csv = False) -> int:
    """Answer one reading SQL statement; docs/sql.md lists tables and views.

    Parameters
    ----------
    query
        For example "select label, mean, n from v_cell_stats where name = 'mse'".
    campaign
        The campaign directory; default the only one below campaigns/.
    as_json
        Print JSON.
    as_csv
        Print CSV.
    """
    from runners.finding import find_campaign
    from store.store import Store

    with Store.open(find_campaign(campaign)) as store:
        found = store.sql(query)
        if store.stale is not None:
            say(f"ablate: the newest results may be missing: {store.stale}")
    write_frame("sql", found, as_json=as_json, as_csv=as_csv)
    return 0


@app.command
def compare(first: str, second: str, /, *, campaign: Path | None = None, as_json: Json = False) -> int:
    """What differs between two trials: in their specs, then in their results.

    Parameters
    ----------
    first
        A trial's key, or the beginning of one.
    second
        Another.
    campaign
        The campaign directory; default the only one below campaigns/.
    as_json
        Print JSON.
    """
    from runners.comparison import compare_trials
    from runners.finding import find_campaign, find_trial
    from store.store import Store

    with Store.open(find_campaign(campaign)) as store:
        found = compare_trials(store, find_trial(store, first), find_trial(store, second))
    if as_json:
        write_json("compare", {"spec": found.spec, "results": found.results.rows(named=True)})
        return 0
    write("\n".join(found.spec) or "the specs are equal")
    write_table(found.results.columns, found.results.rows())
    return 0


@app.command
def report(*, campaign: Path | None = None, grid: str | None = None, out: Path | None = None) -> int:
    """Write the campaign's report: one HTML file that works offline.

    Parameters
    ----------
    campaign
        The campaign directory; default the only one below campaigns/.
    grid
        One of its grids; default all.
    out
        The file to write; default report.html in the campaign.
    """
    from dashboards import write_report
    from runners.finding import find_campaign
    from runners.mixed import warn_of_mixtures
    from store.store import Store

    root = find_campaign(campaign)
    path = write_report(root, out, grid)
    with Store.open(root, refresh=False) as store:
        warn_of_mixtures(store, store.grids() if grid is None else [grid], say)
    say("ablate: the report is")
    write(str(path.resolve()))
    return 0


@app.command
def rebuild(*, campaign: Path | None = None) -> int:
    """Make the store anew from the campaign's files.

    Parameters
    ----------
    campaign
        The campaign directory; default the only one below campaigns/.
    """
    from runners.finding import find_campaign
    from store.rebuild import rebuild as rebuild_store
    from store.store import Store

    root = find_campaign(campaign)
    found = rebuild_store(root)
    with Store.open(root, refresh=False) as store:
        write(f"{store.content_hash()}  {found.rows} rows from {found.shards} shards, {found.attempts} attempts")
        for row in (*store.bad_shards().rows(named=True), *store.bad_records().rows(named=True)):
            say(f"ablate: not served: {row['file']}: {row['reason']}")
    return 0


@app.command
def doctor(*, campaign: Path | None = None, as_json: Json = False) -> int:
    """Check what this machine offers: Python, torch, devices, cores, disk, browser, scheduler.

    Parameters
    ----------
    campaign
        A directory that must be writable; default campaigns/.
    as_json
        Print JSON.
    """
    from runners.doctor import examine

    found = examine(campaign)
    if as_json:
        write_json("doctor", [check._asdict() for check in found])
    else:
        write_table(["", "what", "found"], [("ok" if check.ok else "!!", check.what, check.found) for check in found])
    return 0 if all(check.ok or not check.needed for check in found) else 5


def main() -> None:
    """Run the command line and leave with the documented exit code."""
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: list[str]) -> int:
    """Run one command and return its exit code; errors are one sentence on stderr (JSON on stdout with --json)."""
    debug = "--debug" in arguments
    try:
        result = app([each for each in arguments if each != "--debug"], exit_on_error=False, print_error=False)
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        return _refuse(arguments, 2, f"{str(error).rstrip('.')}; `ablate --help` lists commands and options")
    except KeyboardInterrupt:
        return _refuse(arguments, 130, "interrupted; the same command goes on")
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away, as `head` does; Python would complain at exit
        return 0
    except Exception as error:
        from grid.errors import AblateError

        if debug:
            raise
        if isinstance(error, AblateError):
            return _refuse(arguments, error.exit_code, str(error))
        text = f"internal error, a bug in ablate: {type(error).__name__}: {error}; --debug shows where"
        return _refuse(arguments, 1, text)


def _refuse(arguments: list[str], code: int, text: str) -> int:
    if "--json" in arguments:
        write(json.dumps({"error": {"code": code, "message": text}}, ensure_ascii=False))
    say(f"ablate: {text}")
    return code
