"""Spec files are loaded by path, and what is wrong with one is one sentence that names its line."""

import subprocess
import sys
from pathlib import Path

import pytest

from grid import Grid
from grid.errors import SpecError
from runners.provenance.code import spec_module_name
from runners.provenance.specfile import import_spec_file, load_spec_file

GOOD = """
from grid import Grid, over
from toy_training import ToyTrial, Falling

class Odd(Falling):
    kind: __import__("typing").Literal["odd_{name}"] = "odd_{name}"

first = Grid(name="first", base=ToyTrial(), axes=[over("steps", [1, 2])])
again = first
second = Grid(name="second", base=ToyTrial(operator=Odd()), seeds=range(2))
_part = Grid(name="part", base=ToyTrial())
"""


def write(tmp_path: Path, text: str, name: str = "spec.py") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_grids_of_a_file_are_found_by_name_and_private_ones_are_its_own(tmp_path: Path) -> None:
    found = load_spec_file(write(tmp_path, GOOD.format(name="found")))
    assert list(found) == ["first", "second"]
    assert all(isinstance(grid, Grid) for grid in found.values())


def test_loading_a_file_twice_gives_the_edited_file_even_within_the_same_second(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.format(name="twice"))
    load_spec_file(path)
    path.write_text(GOOD.format(name="twice").replace('"first"', '"other"'))
    assert list(load_spec_file(path)) == ["other", "second"]


def test_a_file_has_one_module_name_in_every_process_and_no_two_files_share_one(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.format(name="named"), "my spec-1.py")
    asked = "import sys; from runners.provenance.code import spec_module_name; print(spec_module_name(sys.argv[1]))"
    other = subprocess.run([sys.executable, "-c", asked, path], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == spec_module_name(path)
    assert spec_module_name(path).isidentifier()
    assert spec_module_name(path) != spec_module_name(tmp_path / "deeper" / path.name)
    load_spec_file(path)
    assert sys.modules[spec_module_name(path)].__file__ == str(path)


def test_loading_leaves_the_import_path_alone(tmp_path: Path) -> None:
    before = list(sys.path)
    load_spec_file(write(tmp_path, GOOD.format(name="path")))
    assert sys.path == before
    assert not list(tmp_path.glob("**/__pycache__"))


@pytest.mark.parametrize("neighbour", ["parts.py", "parts/__init__.py"])
def test_a_missing_module_that_lies_beside_the_spec_file_says_how_it_is_found(tmp_path: Path, neighbour: str) -> None:
    beside = tmp_path / neighbour
    beside.parent.mkdir(exist_ok=True)
    beside.write_text("")
    with pytest.raises(SpecError) as refused:
        load_spec_file(write(tmp_path, "from parts.more import steps\n"))
    assert str(refused.value).endswith(f"Python looks where it is told: PYTHONPATH={tmp_path}")
    with pytest.raises(SpecError) as refused:
        load_spec_file(write(tmp_path, "import elsewhere\n"))
    assert "PYTHONPATH" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\nraise ValueError('no such thing')\n", 2, "ValueError: no such thing"),
        ("x = 1\n\n\nx.y\n", 4, "AttributeError: 'int' object has no attribute 'y'"),
        ("x = 1\nf((1, 2)\n", 2, "syntax error: '(' was never closed; mend the file"),
        ("import nothing_of_the_kind\n", 1, "ModuleNotFoundError: No module named 'nothing_of_the_kind'"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
        (
            "from grid import Grid\nfrom toy_training import ToyTrial\nGrid(name='g', base=ToyTrial(), seeds=[1, 1])",
            3,
            "",
        ),
        ("def f():\n    raise KeyError('k')\n\nf()\n", 2, "KeyError: 'k'"),
        ("from toy_training import ToyTrial\nToyTrial(stepz=1)\n", 2, "stepz"),
        (
            "from variants import LogScore, Number\nclass A(LogScore):\n    nu = Number(init=1.0)\n",
            2,
            "a field of a spec says its type, and 'nu' does not; write nu: Number = Number(...)",
        ),
        (
            "from grid.spec import Spec\nclass A(Spec):\n    x = 3\n",
            2,
            "a field of a spec says its type, and 'x' does not; write it after a colon",
        ),
        (
            "from grid.spec import Spec\nfrom pydantic import field_validator\nclass A(Spec):\n"
            "    @field_validator('y')\n    @classmethod\n    def f(cls, v): return v\n",
            3,
            "Decorators defined with incorrect fields",
        ),
    ],
)
def test_a_file_that_raises_is_one_sentence_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SpecError) as raised:
        load_spec_file(path)
    assert str(raised.value).startswith(f"{path}:{line}: ")
    assert said in str(raised.value)
    assert "Traceback" not in str(raised.value)
    assert "https://" not in str(raised.value)
    assert spec_module_name(path) not in sys.modules


def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return write(tmp_path, text, f"{name}.py")


@pytest.mark.parametrize(
    ("name", "text", "line", "said"),
    [
        ("broken_name", "x = 1\n\nx.y\n", 3, "AttributeError: 'int' object has no attribute 'y'"),
        ("broken_syntax", "x = 1\ndef f(:\n", 2, "invalid syntax"),
        ("broken_spec", "\nfrom toy_training import ToyTrial\nToyTrial(stepz=1)\n", 3, "stepz"),
        ("broken_kind", "from toy_training import Toy\nclass A(Toy):\n    kind: str = 'a'\n", 2, "kind of a choice"),
        ("broken_json", "import json\n\n\njson.loads('{')\n", 4, "JSONDecodeError"),
    ],
)
def test_an_error_in_an_imported_file_is_told_where_it_is_and_who_imported_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, line: int, said: str
) -> None:
    broken = package(tmp_path, monkeypatch, name, text)
    path = write(tmp_path, f"y = 2\nimport {name}\n")
    with pytest.raises(SpecError) as raised:
        load_spec_file(path)
    message = str(raised.value)
    assert message.startswith(f"{broken}:{line}: ")
    assert said in message
    assert message.removesuffix("; mend the file, nothing was planned").endswith(f"(imported by {path}:2)")


def test_an_error_in_a_called_function_is_told_at_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = package(tmp_path, monkeypatch, "calls_json", "import json\n\ndef f():\n    return json.loads('{')\n")
    path = write(tmp_path, "import calls_json\n\n\ncalls_json.f()\n")
    with pytest.raises(SpecError) as raised:
        load_spec_file(path)
    assert str(raised.value).startswith(f"{path}:4: JSONDecodeError: ")
    assert str(raised.value).endswith(f"(raised at {called}:4)")


def test_what_the_package_refuses_is_the_fault_of_the_line_that_asked(tmp_path: Path) -> None:
    path = write(tmp_path, "from grid import over\n\nover('a', [])\n")
    with pytest.raises(SpecError) as raised:
        load_spec_file(path)
    assert str(raised.value).startswith(f"{path}:3: ")
    assert "grid/" not in str(raised.value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("Trial(**trial, seed=-1)", ": Trial: seed should be greater than or equal to 0, got -1"),
        ("Trial(**{**trial, 'task': LinearFunctions()})", ": Trial: the task's sequences fit"),
        ("ShiftGrid(sigma_x=(2, 1))", ": ShiftGrid: sigma_x rises from value to value"),
        ("ShiftGrid(sigma_x=3)", ": ShiftGrid: sigma_x should be a valid tuple, got 3"),
        ("Trial()", ": Trial: task is missing and has no default"),
    ],
)
def test_a_spec_that_is_refused_is_named_once(tmp_path: Path, call: str, said: str) -> None:
    text = (
        "from runners import LinearFunctions, ShiftGrid, Training, Trial\nfrom variants import gpt2, softmax\n"
        "task = LinearFunctions(points=5, evaluation=ShiftGrid(points=5))\n"
        "model = gpt2(layers=1, heads=1, width=8, max_positions=16)\n"
        "trial = dict(task=task, model=model, operator=softmax(), training=Training(steps=2))\n"
    )
    path = write(tmp_path, text + call + "\n")
    with pytest.raises(SpecError) as raised:
        load_spec_file(path)
    assert str(raised.value).startswith(f"{path}:6{said}")


def test_a_failed_load_keeps_the_module_of_the_last_good_one(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.format(name="kept"))
    good = import_spec_file(path)
    path.write_text("raise ValueError\n")
    with pytest.raises(SpecError, match="ValueError: no message"):
        import_spec_file(path)
    assert sys.modules[spec_module_name(path)] is good


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "defines at least one Grid"),
        (
            "from grid import Grid\nfrom toy_training import ToyTrial\n"
            "a = Grid(name='same', base=ToyTrial())\nb = Grid(name='same', base=ToyTrial(steps=3))\n",
            "two grids are named 'same'",
        ),
    ],
)
def test_a_file_without_grids_or_with_ambiguous_ones_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load_spec_file(write(tmp_path, text))


def test_what_is_not_a_python_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no spec file"):
        load_spec_file(tmp_path / "missing.py")
    with pytest.raises(SpecError, match="is a directory"):
        load_spec_file(tmp_path)
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not Python text"):
        load_spec_file(tmp_path / "binary.py")
    (tmp_path / "null.py").write_bytes(b"x = 1\x00\n")
    with pytest.raises(SpecError, match="null"):
        load_spec_file(tmp_path / "null.py")
