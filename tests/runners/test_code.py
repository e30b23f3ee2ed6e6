"""Code is a property of a trial: versions of the package's classes, hashes of what a user's classes reach."""

import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Literal

import pytest
from definitions import forgotten
from toy_training import Toy, ToyTrial

from ablate.grid import Spec
from ablate.runners.provenance.code import Codes
from ablate.runners.provenance.origin import edited_files
from ablate.runners.provenance.source import digest, statements
from ablate.runners.provenance.specfile import load_spec_file
from ablate.training.optimisers import Training
from ablate.training.trial import Trial
from ablate.variants import SSA, LogScore, ssa
from ablate.variants.links import LINKS


def code_of(trial: Spec) -> dict[str, str]:
    return dict(Codes().sources(trial))


FORMULA = '''"""A score of the user's own."""

from typing import ClassVar, Literal

from ablate.grid import Grid, over
from helpers_of_{name} import power
from ablate import LinearFunctions, Training, Trial
from ablate.variants import LogScore, Operator, gpt2, softmax, ssa

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
    assert {"class Mine", "Training"} <= codes[0].keys()


def test_a_trial_has_the_versions_of_what_it_uses(tiny: Trial) -> None:
    plain, rich = code_of(tiny), code_of(tiny.changed(operator=ssa()))
    assert plain == code_of(tiny.changed(seed=9, training=tiny.training.changed(steps=3)))
    assert rich.keys() - plain.keys() == {"Score ssa", "Number", "Link at_least_one", "Link positive"}
    assert {"Training", "Operator", "Backbone", "Placement", "Normaliser total", "Path reference"} <= plain.keys()
    assert {value for name, value in {**plain, **rich}.items() if name != "Path triton"} == {"1"}


def test_raising_a_version_changes_the_code_of_trials_that_use_it(tiny: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = {"plain": tiny, "ssa": tiny.changed(operator=ssa())}
    before = {name: code_of(trial) for name, trial in trials.items()}
    for thing, name, changed in (
        (SSA, "Score ssa", {"ssa"}),
        (LogScore, "Score ssa", {"plain", "ssa"}),  # `Exponential` inherits from it, too
        (Training, "Training", {"plain", "ssa"}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(thing, "version", 2)
            now = {each: code_of(trial) for each, trial in trials.items()}
        assert {each for each in trials if now[each] != before[each]} == changed
        assert now["ssa"][name] == "2"
    monkeypatch.setitem(LINKS, "positive", LINKS["positive"]._replace(version=3))
    assert code_of(trials["ssa"])["Link positive"] == "3"


def test_a_users_class_has_its_hash_and_the_version_of_the_class_that_it_derives_from(
    edited: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = edited()
    assert len(before["class Mine"]) == 32
    assert before["LogScore"] == "1"
    monkeypatch.setattr(LogScore, "version", 2)
    now = edited()
    assert (now["LogScore"], now["class Mine"]) == ("2", before["class Mine"])


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


def test_an_edited_file_of_an_installed_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    record = []
    for name in ("mine/__init__.py", "mine/formula.py", "mine/gone.py"):
        (tmp_path / name).write_text(f"NAME = {name!r}\n")
        digest = urlsafe_b64encode(sha256((tmp_path / name).read_bytes()).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},20")
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "RECORD").write_text("\n".join([*record, "mine-1.0.dist-info/RECORD,,"]))
    monkeypatch.syspath_prepend(tmp_path)
    assert edited_files("mine") == []
    (tmp_path / "mine/formula.py").write_text("NAME = 2\n")
    (tmp_path / "mine/gone.py").unlink()
    assert edited_files("mine") == [tmp_path / "mine/formula.py", tmp_path / "mine/gone.py"]
    assert edited_files("no such package") == []
