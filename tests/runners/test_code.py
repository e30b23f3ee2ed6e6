"""Code is a property of a trial: it changes with what can change a number, and with nothing else."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from definitions import forgotten
from toy_training import Toy, ToyTrial

from grid import Spec
from runners.evaluations import BoundaryValues
from runners.provenance.code import Codes
from runners.provenance.source import digest, statements
from runners.provenance.specfile import load_spec_file
from runners.tasks import AskedLengths, Induction, LengthGrid, Quantifiers
from runners.trial import Trial
from variants import ssa

ROOT = Path(__file__).parent.parent.parent


def code_of(trial: Spec) -> dict[str, str]:
    return dict(Codes().sources(trial))


FORMULA = '''"""A score of the user's own."""

from typing import ClassVar, Literal

from grid import Grid, over
from helpers_of_{name} import power
from runners import LinearFunctions, Training, Trial
from variants import LogScore, Operator, gpt2, softmax, ssa

SLOPE = 2.0
UNUSED = 7
many = range(3)


def log_power(a):
    """A comment in prose."""
    return power(a) * SLOPE


class Mine(LogScore):
    """Mine."""

    source: ClassVar[str] = "mine"
    kind: Literal["mine_{name}"] = "mine_{name}"

    def log_score(self, a):
        return log_power(a)  # the formula

    def oracle(self, a):
        return SLOPE * a


class Other(LogScore):
    source: ClassVar[str] = "mine"
    kind: Literal["other_{name}"] = "other_{name}"

    def log_score(self, a):
        return 3 * a

    def oracle(self, a):
        return 3 * a


base = Trial(
    task=LinearFunctions(points=5),
    model=gpt2(layers=2, heads=2, width=8),
    operator=Operator(score=Mine()),
    training=Training(steps=2),
)
grid = Grid(name="mine", base=base, axes=[over("operator.score", [Mine(), Other()])], seeds=many)
'''


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Loads the formula with replacements made, and gives the code of its first trial."""
    name = f"t{abs(hash(request.node.nodeid))}"
    monkeypatch.syspath_prepend(tmp_path)
    helpers = tmp_path / f"helpers_of_{name}.py"

    def load(before: str = "", after: str = "", helper: str = "def power(a):\n    return a\n") -> dict[str, str]:
        helpers.write_text(helper)
        sys.modules.pop(helpers.stem, None)
        assert before in FORMULA
        path = tmp_path / "mine.py"
        path.write_text((FORMULA.replace(before, after) if before else FORMULA).format(name=name))
        return code_of(load_spec_file(path)["mine"].base)

    return load


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("power(a) * SLOPE", "power(a) * SLOPE * 1.5", False),
        ("return log_power(a)", "return 2 * log_power(a)", False),
        ("SLOPE = 2.0", "SLOPE = 2.5", False),
        ("def log_power", "@staticmethod\ndef log_power", False),
        ("many = range(3)", "many = range(3)\nimport torch\ntorch.set_num_threads(1)", False),
        ("many = range(3)", "many = range(3)\nSLOPE += 1", False),
        ("many = range(3)", "many = range(3)\nif UNUSED:\n    SLOPE = 3.0", False),
        ("many = range(3)", "many = range(3)\nSLOPE, OTHER = 3.0, 4.0", False),
        ("many = range(3)", "many = range(3)\nfrom math import *", False),
        ("many = range(3)", "many = range(3)\nOTHER: int = 4", True),
        ("many = range(3)", "many = range(30)", True),
        ("# the formula", "# the formula, explained", True),
        ("A comment in prose.", "Better prose.", True),
        ("UNUSED = 7", "UNUSED = 8", True),
        ("return 3 * a", "return 4 * a", True),
        ("LogScore, Operator, gpt2, softmax, ssa", "LogScore, Operator, gpt2, llama2, softmax, ssa", True),
    ],
)
def test_code_is_what_a_formula_reaches(edited: Callable[..., dict], before: str, after: str, *, same: bool) -> None:
    assert (edited() == edited(before, after)) == same


def test_code_is_also_that_of_an_imported_helper(edited: Callable[..., dict]) -> None:
    assert edited() == edited(helper="# said\ndef power(a):\n    return a\n")
    assert edited() != edited(helper="def power(a):\n    return -a\n")


def test_a_spec_file_has_the_same_code_wherever_it_lies_and_as_it_was_loaded(tmp_path: Path) -> None:
    text = FORMULA.replace("from helpers_of_{name} import power", "power = abs").format(name="placed")
    codes = []
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "mine.py"
        path.write_text(text)
        with forgotten():
            trial = load_spec_file(path)["mine"].base
            path.write_text(text.replace("SLOPE = 2.0", "SLOPE = 9.0"))
            codes.append(code_of(trial))
    assert codes[0] == codes[1]
    assert {"class Mine", "core"} <= codes[0].keys()


def test_a_trial_runs_the_core_and_the_modules_of_its_own_choices(tiny: Trial) -> None:
    plain, rich = code_of(tiny), code_of(tiny.changed(operator=ssa()))
    assert plain == code_of(tiny.changed(seed=9, training=tiny.training.changed(steps=3)))
    assert "variants.stages.scores.ssa" in rich
    assert "variants.stages.scores.ssa" not in plain
    assert plain["core"] == rich["core"]
    assert not {name for name in plain if name.startswith(("grid", "store", "dashboards", "variants.papers"))}


EDIT = "LIMIT = 1\n"
ALL = "tiny recall quantifier judged"


@pytest.mark.parametrize(
    ("file", "text", "changed"),
    [
        ("variants/stages/scores/new.py", '"""A score nobody uses."""\n', ""),
        ("runners/cli/app.py", EDIT, ""),
        ("variants/operator.py", "# a comment\n", ""),
        ("variants/operator.py", EDIT, ALL),
        ("variants/stages/scores/exponential.py", EDIT, ALL),
        ("variants/paths/new.py", EDIT, ALL),
        ("runners/tasks/synthetic/grammar.py", EDIT, ""),
        ("runners/probes/sink_share.py", EDIT, ALL),
        ("runners/probes/attention_rows.py", EDIT, ALL),
        ("runners/tasks/synthetic/query_task.py", EDIT, "recall"),
        ("runners/tasks/synthetic/in_context.py", EDIT, "tiny quantifier judged"),
        ("runners/tasks/synthetic/linear_functions.py", EDIT, "tiny judged"),
        ("runners/evaluations/boundary_values.py", EDIT, "judged"),
    ],
)
def test_only_files_that_a_trial_uses_are_code(project: Path, tiny: Trial, file: str, text: str, changed: str) -> None:
    trials = {
        "tiny": tiny,
        "recall": tiny.changed(task=Induction(context=8, span=3, evaluation=AskedLengths(lengths=(8,)))),
        "quantifier": tiny.changed(task=Quantifiers(points=5, evaluation=LengthGrid(lengths=(5,)))),
        "judged": tiny.changed(evaluations=(BoundaryValues(points=4),)),
    }
    before = {name: _code_in(project, trial) for name, trial in trials.items()}
    with _appended(project / file, text):
        assert {name for name in trials if _code_in(project, trials[name]) != before[name]} == {*changed.split()}


@contextmanager
def _appended(path: Path, text: str) -> Iterator[None]:
    original = path.read_text() if path.exists() else None
    with path.open("a") as sink:
        sink.write(text)
    try:
        yield
    finally:
        path.unlink() if original is None else path.write_text(original)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rooms, copied, so that their files can be edited."""
    root = tmp_path_factory.mktemp("project")
    for room in ("grid", "variants", "runners", "store", "dashboards"):
        shutil.copytree(ROOT / room, root / room, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def _code_in(project: Path, trial: Trial) -> dict[str, str]:
    """Return the code of a trial as seen from the files of `project`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runners.provenance.code.PROJECT", project)
        patch.setattr(
            "runners.provenance.code._file", lambda module: str(project / Path(module.__file__).relative_to(ROOT))
        )
        patch.setattr("runners.provenance.code.package_of", lambda module: module.__name__.partition(".")[0])
        return code_of(trial)


def test_a_class_of_a_notebook_has_the_code_of_its_methods() -> None:
    def made(body: str) -> dict[str, str]:
        space = {"Toy": Toy, "Literal": Literal, "__name__": "nowhere"}
        kind_field = 'kind: Literal["cell"] = "cell"'
        exec(f"class Cell(Toy):\n    {kind_field}\n    def rate_of(self):\n        return {body}\n", space)
        return code_of(ToyTrial(operator=space["Cell"]()))

    assert made("1 + self.rate") == made("1 + self.rate")
    assert made("1 + self.rate") != made("1 + self.other")


def test_text_that_is_not_python_is_compared_as_text() -> None:
    assert digest(statements("def f(")) != digest(statements("def f(("))


def test_grids_are_no_code_whatever_makes_them(tmp_path: Path) -> None:
    text = FORMULA.replace("from helpers_of_{name} import power", "power = abs").format(name="maker")
    maker = "def make(name, **rest):\n    return Grid(name=name, **rest)\n\ngrid = make("
    made = text.replace("grid = Grid(name=", maker)
    path = tmp_path / "mine.py"
    codes = []
    for seeds in ("range(3)", "range(9)"):
        path.write_text(made.replace("many = range(3)", f"many = {seeds}") + "\nprint(len(list(grid.seeds)))\n")
        codes.append(code_of(load_spec_file(path)["mine"].base))
    assert codes[0] == codes[1]
