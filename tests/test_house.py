"""Rules of the house, each with a case that makes it fail."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import grimp
import networkx
import pytest

from ablate.runners.provenance.specfile import load_spec_file

ROOT = Path(__file__).parent.parent
ROOMS = ("grid", "variants", "runners", "training", "store", "dashboards", "papers")
FORBIDDEN_NAMES = {"utils", "helpers", "common", "base", "misc"}
VAGUE_NAMES = {"about", "found", "given", "look", "looked", "survey", "walk"}
"""Variables, fields and functions are called by what they hold or do instead."""
LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 400, 50, 6

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def complaints(name: str, text: str) -> list[str]:
    """List the forbidden things in a source file."""
    tree = ast.parse(text)
    found = []
    if len(text.splitlines()) > LONGEST_FILE:
        found.append(f"{name} is longer than {LONGEST_FILE} lines")
    if Path(name).stem in FORBIDDEN_NAMES:
        found.append(f"{name} has a name that says nothing")
    if ast.get_docstring(tree) is None:
        found.append(f"{name} does not say what it is")
    names = {getattr(node, key, "") for node in ast.walk(tree) for key in ("id", "arg", "name")}
    names |= {getattr(node, "attr", "") for node in ast.walk(tree) if isinstance(getattr(node, "ctx", None), ast.Store)}
    found += [f"{name} uses the name {each}" for each in sorted(names & VAGUE_NAMES)]
    for function in functions(tree):
        where = f"{name}:{function.lineno} {function.name}"
        if function.end_lineno - function.lineno >= LONGEST_FUNCTION:
            found.append(f"{where} is longer than {LONGEST_FUNCTION} lines")
        if not name.startswith("runners/trainers/"):  # trainers of other libraries call with keywords of theirs
            found += [
                f"{where} takes **{function.args.kwarg.arg} and never reads it" for _ in ignored_keywords(function)
            ]
        if not function.name.startswith("_") and function in tree.body and ast.get_docstring(function) is None:
            found.append(f"{where} has no docstring")
    return found


def ignored_keywords(function: Function) -> list[str]:
    keywords = function.args.kwarg
    if keywords is None or any("abstractmethod" in ast.unparse(each) for each in function.decorator_list):
        return []
    if len(function.body) == 2 and isinstance(getattr(function.body[1], "value", None), ast.Constant):
        return []  # a family's default answer
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return [] if keywords.arg in read else [keywords.arg]


def test_every_source_file_keeps_the_rules() -> None:
    found = [
        line for path in sources() for line in complaints(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("grid/long.py", '"""x"""\n' + "a = 1\n" * 400, "longer than 400 lines"),
        ("grid/utils.py", '"""x"""\n', "says nothing"),
        ("grid/silent.py", "a = 1\n", "does not say"),
        ("grid/big.py", '"""x"""\ndef _f():\n' + "    a = 1\n" * 50, "longer than 50 lines"),
        ("grid/deaf.py", '"""x"""\ndef _f(**options):\n    pass\n', "never reads"),
        ("grid/mute.py", '"""x"""\ndef f():\n    pass\n', "no docstring"),
        ("store/vague.py", '"""x"""\ndef _f(about):\n    return [found for found in about]\n', "the name found"),
    ],
)
def test_the_rules_can_be_broken(name: str, text: str, words: str) -> None:
    assert any(words in line for line in complaints(name, text))


BREACHES = {
    "grid/_breach.py": "import torch",
    "store/_breach.py": "from ablate import variants",
    "variants/stages/_breach.py": "from ablate import runners",
    "variants/papers/_breach.py": "import ablate.variants.laws",
    "dashboards/_breach.py": "from ablate import variants",
    "runners/cli/_breach.py": "from ablate import dashboards",
    "runners/planning/_breach.py": "from ablate.training.tasks import task",
    "training/tasks/_breach.py": "import ablate.training.trial",
    "training/loop/_breach.py": "from ablate import papers",
    "papers/matching/_breach.py": "import ablate.papers.page",
    "runners/attempts/_breach.py": "import ablate.runners.backends.slurm.scheduler",
    "runners/monitoring/_breach.py": "import ablate.runners.backends.slurm.scheduler",
}


def test_imports_against_the_direction_and_a_package_without_a_layer_are_found(tmp_path: Path) -> None:
    """That there are none is a check of `make lint`."""
    package = tmp_path / "ablate"
    shutil.copytree(ROOT / "src" / "ablate", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, line in {**BREACHES, "runners/_breach.py": ""}.items():
        (package / path).write_text(f"{line}\n", encoding="utf-8")
    program = "from importlinter.cli import lint_imports_command as run; run()"
    command = [sys.executable, "-P", "-c", program, "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    found = set(re.findall(r"[\w.]+\._breach(?= -> )", result.stdout))
    assert found == {f"ablate.{path.removesuffix('.py').replace('/', '.')}" for path in BREACHES}
    without_layer = set(re.findall(r"^- ([\w.]+)$", result.stdout, re.MULTILINE))
    assert without_layer == {f"ablate.{room}._breach" for room in ("runners", "store", "dashboards")}, result.stdout
    assert "Contracts: 0 kept, " in result.stdout


def circles(*packages: str) -> list[set[str]]:
    """Groups of modules that import each other, also for types only or inside of functions."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    imports = networkx.DiGraph(
        (module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module)
    )
    return [circle for circle in networkx.strongly_connected_components(imports) if len(circle) > 1]


def test_no_modules_import_each_other() -> None:
    assert circles("ablate") == []


def test_circles_of_imports_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = {
        "__init__": "",
        "first": "import planted_circles.second",
        "second": "def later():\n    from planted_circles import third",
        "third": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planted_circles.first import Name",
        "user": "import planted_circles.first",
    }
    (tmp_path / "planted_circles").mkdir()
    for name, text in planted.items():
        (tmp_path / f"planted_circles/{name}.py").write_text(f"{text}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert circles("planted_circles") == [{f"planted_circles.{name}" for name in ("first", "second", "third")}]


LIGHT = {
    "ablate.grid": ("torch", "duckdb", "polars", "plotly", "pyarrow"),
    "ablate.grid.errors": ("torch", "pydantic"),
    "ablate.store": ("torch", "duckdb", "polars", "plotly", "pyarrow", "numpy", "pydantic"),
    "ablate.store.files.shards": ("torch", "duckdb", "polars", "plotly", "scipy"),
    "ablate.store.files.trial_state": ("torch", "duckdb", "polars", "plotly", "scipy"),
    "ablate.dashboards.report.report": ("torch",),
    "ablate.runners.cli.app": ("torch", "duckdb", "polars", "plotly", "pydantic"),
    "ablate.runners.execution.run": ("torch",),
    "ablate.store.store": ("torch", "plotly", "pydantic"),
    "ablate.runners.attempts.worker": ("duckdb", "polars", "plotly"),
}


def loaded(module: str, heavy: Sequence[str]) -> set[str]:
    """Which of the `heavy` packages a fresh interpreter has after it has imported `module`."""
    program = f"import sys, {module}; print(*(sys.modules.keys() & {set(heavy)!r}))"
    result = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_the_check_for_heavy_modules_can_fail() -> None:
    assert loaded("ablate.store.files.shards", ("duckdb", "pyarrow")) == {"pyarrow"}


@pytest.mark.parametrize("module", LIGHT)
def test_a_module_loads_only_what_it_needs(module: str) -> None:
    assert loaded(module, LIGHT[module]) == set()


def bare_imports(text: str) -> list[str]:
    """Find imports of rooms without `ablate`, also inside of strings; they succeed in the root of a clone."""
    rooms = "|".join(ROOMS)
    statements = rf"(?:^|[\n;\"'`]|\\n)\s*((?:from (?:{rooms})(?:\.\w+)* import|import (?:{rooms})\b).*)"
    calls = rf"\b((?:files|find_spec|import_module)\([\"'](?:{rooms})\b.*)"
    return re.findall(statements, text) + re.findall(calls, text)


def test_rooms_are_imported_below_ablate_only() -> None:
    places = (*ROOMS, "src", "tests", "specs", "benchmarks", "examples", "docs")
    paths = [
        path for place in places for kind in ("py", "pyi", "md", "ipynb") for path in (ROOT / place).rglob(f"*.{kind}")
    ]
    paths = [path for path in paths if "golden" not in path.parts]  # release 0.1
    found = {path: bare_imports(path.read_text(encoding="utf-8")) for path in paths}
    assert not {path: each for path, each in found.items() if each}
    planted = "\n".join(
        f"{start} {room}{rest}" for start, rest in (("from", " import x"), ("import", ".y")) for room in ROOMS
    )
    planted += "".join(f"\n{call}('{room}')" for call in ("files", "import_module") for room in ROOMS)
    assert len(bare_imports(planted)) == 4 * len(ROOMS)


def test_a_second_import_of_the_operators_is_refused() -> None:
    program = "import importlib, sys; importlib.import_module(sys.argv[1])"
    command = [sys.executable, "-c", program, "variants"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stderr
    assert re.match(r"ablate\.grid\.errors\.SpecError: .*\bablate\.variants\.", said.splitlines()[-1]), said


def test_the_project_speaks_of_itself_only() -> None:
    foreign = re.compile(r"/work/|\.\./shared|sub-?agent|this session|slurm-lab", re.IGNORECASE)
    texts = [*sources(), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "specs").rglob("*.py")]
    found = [path for path in texts if foreign.search(path.read_text(encoding="utf-8"))]
    assert not found


def test_every_link_of_the_readme_exists() -> None:
    links = re.findall(r"\]\(([\w./-]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_s_grid_is_a_grid(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "my_grid.py").write_text(code, encoding="utf-8")
    (grid,) = load_spec_file(tmp_path / "my_grid.py").values()
    assert len(list(grid.cells())) == 16 * 3
    assert len({planned.key for planned in grid.trials()}) == 16 * 3 * len(grid.seeds)
