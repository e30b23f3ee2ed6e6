"""Everything that loading a spec file reads or changes is part of the code of its trials."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import polars
import pytest

from ablate.runners.cli.app import execute
from ablate.runners.provenance.code import sources_of_loading
from ablate.runners.provenance.specfile import load_spec_file

SPEC = """
import json
import os
from pathlib import Path

from ablate import Grid, LinearFunctions, Measure, ShiftGrid, Training, Trial, gpt2, off_by_one, over, softmax
import HELPER

FACTOR = 2.0
AXES = [over("operator", [softmax(), off_by_one()])]

def slower(rate):
    return rate / 2

def patch(cls):
    cls.patched = FACTOR
    return cls

# effects
here = Path(__file__).parent
settings = json.loads((here / "settings.json").read_text())
rate = slower(settings["lr"])
seeds = range(2)
variable = os.getenv("ABLATE_TEST_VARIABLE")
task = LinearFunctions(
    points=5, batch=4, evaluation=ShiftGrid(sigma_x=(1,), sigma_f=(1,), functions=3, sequences=2, points=5)
)
model = gpt2(layers=1, heads=1, width=8, max_positions=16)
base = Trial(task=task, model=model, operator=softmax(), training=Training(steps=2))
mine = Grid(name="mine", base=base, axes=AXES, seeds=seeds, baseline={"operator": "softmax"},
    measure=Measure(name="mse", point={"sigma_f": 1}))
if __name__ == "__main__":
    print("run")
"""
HELPER = """
import os

def unused():
    return 1

def softer(self):
    return 2

WIDTH = os.environ.get("ABLATE_TEST_HELPER", "8")
"""


class Files:
    """A spec file, a module that it imports and a data file."""

    def __init__(self, place: Path) -> None:
        self.place, self.helper = place, f"helper_{abs(hash(str(place)))}"
        self.spec, self.settings = place / "mine.py", place / "settings.json"
        self.write()
        self.settings.write_text('{"lr": 0.1}')

    def write(self, effects: str = "", edit: tuple[str, str] = ("", ""), helper: str = HELPER) -> None:
        assert edit[0] in SPEC + helper
        (self.place / f"{self.helper}.py").write_text(helper.replace(*edit))
        self.spec.write_text(SPEC.replace("HELPER", self.helper).replace("# effects", effects).replace(*edit))

    def sources(self) -> dict[str, str]:
        sys.modules.pop(self.helper, None)
        load_spec_file(self.spec)
        return sources_of_loading([self.spec])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.delenv("ABLATE_TEST_VARIABLE", raising=False)
    return Files(tmp_path)


def test_reads_of_the_file_and_of_its_imports_count_by_content(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"file settings.json", "$ABLATE_TEST_VARIABLE", "$ABLATE_TEST_HELPER"}
    before = files.sources()
    assert before.keys() == names
    assert files.sources() == before
    files.settings.write_text('{"lr": 0.2}')
    monkeypatch.setenv("ABLATE_TEST_VARIABLE", "x")
    monkeypatch.setenv("ABLATE_TEST_HELPER", "9")
    after = files.sources()
    assert after.keys() == names
    assert all(after[name] != before[name] for name in names)
    assert type(sys.modules["os"].environ).__name__ == "_Environ"


FACTOR = ("FACTOR = 2.0", "FACTOR = 3.0")
PATCH_OF = HELPER + "\ndef patch_of(cls):\n    cls.patched = 4\n    return cls\n"


@pytest.mark.parametrize(
    ("effect", "edit"),
    [
        ("ShiftGrid.patched = FACTOR", FACTOR),
        ("_ = patch(ShiftGrid)", FACTOR),
        ("for each in (ShiftGrid,):\n    each.patched = FACTOR", FACTOR),
        ("put = lambda cls: setattr(cls, 'patched', FACTOR)\n_ = put(ShiftGrid)", FACTOR),
        ("def within(cls):\n    return patch(cls)\n_ = list(map(within, [ShiftGrid]))", FACTOR),
        (
            "def give(f):\n    setattr(ShiftGrid, 'patched', f)\n    return f\n@give\ndef patched(): return FACTOR",
            FACTOR,
        ),
        ("class P:\n    def go(self):\n        ShiftGrid.patched = FACTOR\n_ = P().go()", FACTOR),
        ("class P:\n    ShiftGrid.patched = FACTOR", FACTOR),
        (
            "from unittest import mock\n_ = mock.patch.object(ShiftGrid, 'patched', FACTOR, create=True).start()",
            FACTOR,
        ),
        ("from HELPER import softer\nShiftGrid.softer = softer", ("return 2", "return 3")),
        ("import HELPER\n_ = HELPER.patch_of(ShiftGrid)", ("patched = 4", "patched = 5")),
    ],
)
def test_a_patch_and_what_it_uses_count(files: Files, effect: str, edit: tuple[str, str]) -> None:
    """A patch may come from an imported module, or be made by its function."""
    effect = effect.replace("HELPER", files.helper)
    files.write(effect, helper=PATCH_OF)
    patched = files.sources()["spec"]
    files.write(effect, edit=edit, helper=PATCH_OF)
    assert files.sources()["spec"] != patched


def test_a_setting_that_an_imported_module_makes_counts(files: Files) -> None:
    files.write(helper=HELPER + "\nos.environ.setdefault('ABLATE_TEST_HELPER', '8')")
    assert "spec" in files.sources()


@pytest.mark.parametrize(
    ("read", "name"),
    [
        ("import polars\nrows = polars.read_csv(here / 'rows.csv')", "rows.csv"),
        (
            "import polars\nPATH = f'{here}/rows.csv'\ndef read():\n    return polars.read_csv(PATH)\nx = read()",
            "rows.csv",
        ),
        ("import polars\nrows = polars.read_parquet(here / 'data' / 'rows.parquet')", "rows.parquet"),
        ("import duckdb\nrows = duckdb.sql(f\"SELECT * FROM '{here}/rows.csv'\").fetchall()", "rows.csv"),
        ("import sqlite3\nrows = sqlite3.connect(f'file:{here}/rows.db?mode=ro', uri=True)", "rows.db"),
    ],
)
def test_files_that_native_code_reads_count_by_content(files: Files, read: str, name: str) -> None:
    path = files.place / ("data" if name.endswith(".parquet") else ".") / name
    path.parent.mkdir(exist_ok=True)
    seen = []
    for value in (1, 1, 2):
        frame = polars.DataFrame({"a": [value]})
        if path.suffix == ".parquet":
            frame.write_parquet(path)
        else:
            frame.write_csv(path)
        files.write(f"here = Path(__file__).parent\n{read}")
        seen.append(files.sources()[f"file {name}"])
    assert seen[0] == seen[1] != seen[2]


def test_a_file_that_no_library_reads_at_load_does_not_count(files: Files) -> None:
    (files.place / "losses.csv").write_text("a\n1\n")
    files.write("import polars\nLOG = 'losses.csv'\ndef on_step(step):\n    polars.DataFrame().write_csv(LOG)")
    assert "file losses.csv" not in files.sources()


@pytest.mark.parametrize(
    "edit",
    [
        ("seeds = range(2)", "seeds = range(5)"),
        ("return rate / 2", "return rate / 3"),
        ('print("run")', 'print("ran")'),
    ],
)
def test_seeds_configurations_and_unused_definitions_do_not_count(files: Files, edit: tuple[str, str]) -> None:
    files.write("ShiftGrid.patched = FACTOR")
    before = files.sources()
    files.write("ShiftGrid.patched = FACTOR", edit=edit)
    assert files.sources() == before


@pytest.mark.parametrize(
    "harmless",
    [
        "axes = []\nfor rate in RATES:\n    axes.append(rate)",
        "if FACTOR > 1:\n    FACTOR = 1.5\nelse:\n    FACTOR = 0.5",
        "print('loaded')",
        "names = {}\nfor name in 'ab':\n    names[name] = 1",
        "assert FACTOR",
        "FACTOR += 1",
    ],
)
def test_statements_that_change_the_files_own_variables_do_not_count(files: Files, harmless: str) -> None:
    files.write(f"RATES = (1, 2)\n{harmless}")
    assert "spec" not in files.sources()


@pytest.mark.parametrize(
    "acts",
    [
        "import torch\ntorch.set_num_threads(1)",
        "for each in (ShiftGrid,):\n    each.patched = FACTOR",
        "import torch\nwith torch.no_grad():\n    pass",
        "from os.path import *",
        "grids = sys.modules\ngrids['x'] = 1",
    ],
)
def test_statements_that_change_more_count_wherever_they_stand(files: Files, acts: str, tmp_path: Path) -> None:
    files.write(f"import sys\n{acts}")
    here = files.sources()["spec"]
    other = Files(tmp_path / "other") if (tmp_path / "other").mkdir() is None else None
    assert other is not None
    other.spec = other.place / "named_differently.py"
    other.write(f"import sys\n{acts}")
    assert other.sources()["spec"] == here


def test_seeds_that_differ_in_what_was_loaded_are_told(
    files: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ablate(command: str, *flags: str) -> str:
        what = [str(files.spec)] if command in ("plan", "run") else []
        monkeypatch.delitem(sys.modules, files.helper, raising=False)
        assert execute([command, *what, "--campaign", str(files.place / "c"), *flags]) == 0
        said = capsys.readouterr()
        return said.out + said.err

    run: Callable[..., str] = lambda *flags: ablate("run", "--on", "inline", *flags)  # noqa: E731
    run()
    assert "code" not in ablate("plan") + ablate("table")
    monkeypatch.setenv("ABLATE_TEST_VARIABLE", "x")
    files.write("ShiftGrid.patched = FACTOR", edit=("range(2)", "range(3)"))
    assert "4 of these ran other code" in run()
    mixed = ablate("table")
    assert "mix versions of the code ($ABLATE_TEST_VARIABLE, spec)" in mixed
    (row,) = json.loads(ablate("table", "--json").partition("\nablate:")[0])["data"]
    assert (row["verdict"], "code" in row["reason"]) == ("no verdict", True), row
    assert "4 trained" in run("--rerun-stale")
    assert "code" not in run() + ablate("plan") + ablate("table")
