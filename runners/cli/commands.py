"""Commands of `ablate`, each a function that an entry point of `ablate.commands` names; any package may add some.

Our own entry points are in `pyproject.toml`; `make` installs anew after an edit.

The options of a command are the parameters of its function, as cyclopts reads them. Only the module of the command that
is called is imported; the list of commands imports all.
"""

from functools import partial
from importlib.metadata import EntryPoint
from typing import Final

from cyclopts import App, Group

from ablate.grid.docstrings import docstring
from ablate.grid.errors import EnvironmentProblem
from ablate.grid.plugins import plugins, use_plugin
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
    known = plugins("ablate.commands", tell, word)
    for name in [word] if word in known else known:
        if name in app:
            continue
        try:
            use_plugin(known[name], partial(_register, app))
        except EnvironmentProblem as problem:
            if word in known:
                raise
            tell(str(problem))


def _register(app: App, entry: EntryPoint) -> None:
    name, function = entry.name, entry.load()
    function.__doc__ = docstring(function)  # also with -OO
    title, example = next(((title, own[name]) for title, own in COMMANDS.items() if name in own), (_OTHERS, None))
    app.command(
        function,
        name=name,
        group=_GROUPS[title],
        help_epilogue=f"Example: ablate {example}" if example else None,
        synonym="judge" if name == "evaluate" else None,
    )
