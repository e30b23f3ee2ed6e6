"""Spec files are loaded by path, and what is wrong with one is one sentence that names its line."""

import subprocess
import sys
from pathlib import Path

import pytest

from ablate.grid import Grid
from ablate.grid.errors import NotFoundError, SpecError
from ablate.runners.provenance.code import spec_module_name
from ablate.runners.provenance.specfile import import_spec_file, load_spec_file

GOOD = """
from ablate.grid import Grid, over
from toy_training import ToyTrial, Falling

class Odd(Falling):
    kind: __import__("typing").Literal["odd_{name}"] = "odd_{name}"

first = Grid(name="first", base=ToyTrial(), axes=[over("steps", [1, 2])])
again = first
second = Grid(name="second", base=ToyTrial(operator=Odd()), seeds=range(2))
_part = Grid(name="part", base=ToyTrial())
"""


TRIAL = """\
from ablate import LinearFunctions, ShiftGrid, Training, Trial
from ablate.variants import gpt2, softmax
task = LinearFunctions(points=5, evaluation=ShiftGrid(points=5))
model = gpt2(layers=1, heads=1, width=8, max_positions=16)
trial = dict(task=task, model=model, operator=softmax(), training=Training(steps=2))
"""


def write(tmp_path: Path, text: str, name: str = "spec.py") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def refusal_of(path: Path) -> str:
    with pytest.raises(SpecError) as raised:
        load_spec_file(path)
    return str(raised.value)


def test_the_grids_of_an_edited_file_are_found_by_name_and_private_ones_are_its_own(tmp_path: Path) -> None:
    before, path = list(sys.path), write(tmp_path, GOOD.format(name="found"))
    grids = load_spec_file(path)
    assert list(grids) == ["first", "second"]
    assert all(isinstance(grid, Grid) for grid in grids.values())
    path.write_text(GOOD.format(name="found").replace('"first"', '"other"'))
    assert list(load_spec_file(path)) == ["other", "second"]
    assert [each for each in sys.path if each not in before] == [str(tmp_path)]
    assert not list(tmp_path.glob("**/__pycache__"))


def test_a_file_has_one_module_name_in_every_process_and_no_two_files_share_one(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.format(name="named"), "my spec-1.py")
    asked = (
        "import sys; from ablate.runners.provenance.code import spec_module_name; print(spec_module_name(sys.argv[1]))"
    )
    other = subprocess.run([sys.executable, "-c", asked, path], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == spec_module_name(path)
    assert spec_module_name(path).isidentifier()
    assert spec_module_name(path) != spec_module_name(tmp_path / "deeper" / path.name)
    load_spec_file(path)
    assert sys.modules[spec_module_name(path)].__file__ == str(path)


@pytest.mark.parametrize("neighbour", ["neighbour.py", "neighbour/__init__.py"])
def test_a_spec_file_imports_modules_of_its_own_directory(tmp_path: Path, neighbour: str) -> None:
    for place in ("one", "two"):
        beside = tmp_path / place / neighbour
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(f"NAME = {place!r}\n")
        text = GOOD.format(name=f"beside_{place}_{len(neighbour)}").replace('"second"', "NAME")
        assert list(load_spec_file(write(tmp_path / place, f"from neighbour import NAME\n{text}"))) == ["first", place]
    assert sys.path.count(str(tmp_path / "one")) == 1
    (tmp_path / "one" / "json.py").write_text("raise RuntimeError")  # installed modules come first
    load_spec_file(write(tmp_path / "one", "import json\n" + GOOD.format(name=f"json_{len(neighbour)}")))


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\nraise ValueError('no such thing')\n", 2, "ValueError: no such thing"),
        ("x = 1\nf((1, 2)\n", 2, "syntax error: '(' was never closed"),
        ("from toy_training import ToyTrial\nToyTrial(stepz=1)\n", 2, "stepz"),
        ("from ablate.variants import LogScore\nclass A(LogScore):\n    nu = 1.0\n", 2, "non-annotated attribute"),
        (f"{TRIAL}Trial(**{{**trial, 'task': LinearFunctions()}})", 6, "Trial: the task's sequences have up to"),
        ("from ablate import Grid, ovr", 1, "did you mean 'over'?"),
        (f"{TRIAL}ShiftGrid(sigma_x=3)", 6, "ShiftGrid: sigma_x should be a valid tuple, got 3"),
        ("import ablate\nablate.gpt2(layer=2)", 2, "did you mean 'layers'?"),
        ("from ablate import *\nssaa()", 2, "NameError: name 'ssaa' is not defined; did you mean 'ssa'?"),
        ("\nssa()", 2, "name 'ssa' is not defined; `from ablate import ssa` defines it"),
        ("def own(*, width): ...\nown(widht=1)", 2, "own() has no argument 'widht'; it has width"),
        ("from ablate import AdamW\nAdamW(lr='2e-3')", 2, "AdamW: lr should be a valid number, got '2e-3'"),
    ],
)
def test_a_file_that_raises_is_one_sentence_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = write(tmp_path, text)
    message = refusal_of(path)
    assert message.startswith(f"{path}:{line}: ")
    assert said in message
    assert not any(words in message for words in ("Traceback", "https://", "grid/"))
    assert spec_module_name(path) not in sys.modules


def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return write(tmp_path, text, f"{name}.py")


@pytest.mark.parametrize(
    ("name", "text", "line", "said"),
    [
        ("broken_spec", "\nfrom toy_training import ToyTrial\nToyTrial(stepz=1)\n", 3, "stepz"),
        ("broken_json", "import json\n\n\njson.loads('{')\n", 4, "JSONDecodeError"),
    ],
)
def test_an_error_in_an_imported_file_is_told_where_it_is_and_who_imported_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, line: int, said: str
) -> None:
    broken = package(tmp_path, monkeypatch, name, text)
    path = write(tmp_path, f"y = 2\nimport {name}\n")
    message = refusal_of(path)
    assert message.startswith(f"{broken}:{line}: ")
    assert said in message
    assert message.endswith(f"(imported by {path}:2)")


def test_an_error_in_a_called_function_is_told_at_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = package(tmp_path, monkeypatch, "calls_json", "import json\n\ndef f():\n    return json.loads('{')\n")
    path = write(tmp_path, "import calls_json\n\n\ncalls_json.f()\n")
    message = refusal_of(path)
    assert message.startswith(f"{path}:4: JSONDecodeError: ")
    assert message.endswith(f"(raised at {called}:4)")


def test_a_failed_load_keeps_the_module_of_the_last_good_one(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.format(name="kept"))
    good = import_spec_file(path)
    path.write_text("raise ValueError\n")
    with pytest.raises(SpecError, match="ValueError: no message"):
        import_spec_file(path)
    assert sys.modules[spec_module_name(path)] is good


def test_what_is_no_python_file_with_grids_of_their_own_is_refused(tmp_path: Path) -> None:
    assert "defines no Grid" in refusal_of(write(tmp_path, "x = 1\n"))
    twice = (
        "from ablate.grid import Grid\nfrom toy_training import ToyTrial\n"
        "a = Grid(name='same', base=ToyTrial())\nb = Grid(name='same', base=ToyTrial(steps=3))\n"
    )
    assert "two grids are named 'same'" in refusal_of(write(tmp_path, twice))
    with pytest.raises(NotFoundError, match="there is no spec file"):
        load_spec_file(tmp_path / "missing.py")
    assert "is a directory" in refusal_of(tmp_path)
    for content, words in ((b"\xff\xfe\x00", "not Python text"), (b"x = 1\x00\n", "null")):
        (tmp_path / "binary.py").write_bytes(content)
        assert words in refusal_of(tmp_path / "binary.py")
