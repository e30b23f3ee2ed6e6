"""Commands of `ablate`, each a function that an entry point of `ablate.commands` names; any package may add some.

The options of a command are the parameters of its function, as cyclopts reads them. Only the module of the command that
is called is imported; the list of commands imports all.
"""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from cyclopts import App, Group

from ablate.grid.docstrings import docstring
from ablate.grid.errors import EnvironmentProblem
from ablate.runners.output import tell

COMMANDS: Final[dict[str, dict[str, str]]] = {
    "Plan and train": {
        "plan": "plan specs/quickstart.py --all",
        "run": "run specs/quickstart.py seeds=0..9 --workers 2",
        "retry": "retry operator=SSA state=failed",
        "cancel": "cancel state=queued operator=SSA",
        "repro": "repro operator=SSA seed=1",
        "evaluate": "evaluate operator=SSA --with evaluations.py",
    },
    "Follow": {
        "status": "status --watch",
        "logs": "logs operator=SSA seed=1 --follow",
        "dash": "dash campaigns/quickstart --port 0",
    },
    "Compare": {
        "table": "table --why SSA",
        "effects": "effects --interactions",
        "curves": "curves loss --by tokens",
        "pareto": "pareto --cost train_s --cost memory_bytes",
        "compare": "compare label=softmax label=SSA seed=1",
        "report": "report campaigns/quickstart --out report.html",
    },
    "Query, export and maintain": {
        "sql": 'sql "select label, mean, n from v_cell_stats order by mean" --csv',
        "export": "export cells --to table.tex",
        "import": 'import runs --grid main --label "{optimiser}"',
        "tag": "tag operator=SSA +good -bad",
        "note": 'note operator=SSA "loss spikes"',
        "rename": "rename main screening",
        "rm": "rm operator=SSA seed=1",
        "check": "check --rebuild",
    },
    "Look up": {
        "operators": "operators ssa",
        "tasks": "tasks associative_recall",
        "probes": "probes sink_share",
        "prove": "prove specs/quickstart.py",
        "papers": "papers ssa:table1",
        "published": "published 003 T1",
    },
}
"""The package's commands with an example, in the groups of `ablate --help`."""

_OTHERS: Final = "Other packages"
_GROUPS: Final = {title: Group(title, sort_key=place) for place, title in enumerate([*COMMANDS, _OTHERS])}


def register_commands(app: App, word: str) -> None:
    """Register the command `word`; all commands if there is none of that name, as for the list of commands.

    Raises EnvironmentProblem if the command cannot be imported. A command of the list that cannot is told on stderr.
    """
    known = {each.name: each for each in _entries()}
    for name in [word] if word in known else known:
        if name in app:
            continue
        try:
            _register(app, known[name])
        except Exception as error:
            place = f"the command {name!r} of package {_package(known[name])!r}"
            why = f"{place} cannot be imported: {type(error).__name__}: {error}"
            if word in known:
                raise EnvironmentProblem(f"{why}; install its other versions, or remove it") from error
            tell(why)


def _entries() -> Iterator[EntryPoint]:
    """Yield the package's own commands, then those of other packages with other names."""
    ours = {name for examples in COMMANDS.values() for name in examples}
    every = sorted(entry_points(group="ablate.commands"), key=lambda each: _package(each) != "ablate")
    taken: dict[str, str] = {}
    for each in every:
        if each.name in taken or (each.name in ours and _package(each) != "ablate"):
            tell(f"the command {each.name!r} of package {_package(each)!r} is left out: its name is taken")
            continue
        taken[each.name] = _package(each)
        yield each


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else ""


def _register(app: App, entry: EntryPoint) -> None:
    function = entry.load()
    function.__doc__ = docstring(function)  # also with -OO
    title, example = next(
        ((title, own[entry.name]) for title, own in COMMANDS.items() if entry.name in own), (_OTHERS, None)
    )
    app.command(
        function,
        name=entry.name,
        group=_GROUPS[title],
        help_epilogue=f"Example: ablate {example}" if example else None,
        synonym="judge" if entry.name == "evaluate" else None,
    )
