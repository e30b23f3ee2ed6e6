"""The page of tasks and evaluations is what the code says now, and its pictures show what the tasks draw."""

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import torch

import runners.evaluations
import runners.tasks
from grid.errors import SpecError
from grid.spec import Choice
from runners.catalogue import evaluation_drawings, task_drawings
from runners.catalogue.choice_words import field_rows, spec_line, told_of, type_words
from runners.catalogue.evaluation_drawings import EVALUATIONS, LIMIT, evaluation_picture
from runners.catalogue.explain_choice import explain_choice
from runners.catalogue.materials import materials
from runners.catalogue.panels import Chart, Panel, Strip
from runners.catalogue.task_drawings import TASKS, task_picture
from runners.catalogue.tasks_page import page, write_page
from runners.cli.app import execute
from runners.evaluations import Evaluation
from runners.tasks import Needle, Task
from runners.tasks.text.text import Text

DOCS = Path(__file__).parent.parent / "docs"
SVG = "{http://www.w3.org/2000/svg}"
REMEDY = "run `python -m runners.catalogue.tasks_page` and commit docs/tasks.md and docs/tasks"


@pytest.fixture(scope="module")
def files() -> Mapping[str, str]:
    return page()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with materials() as made:
        yield made


def defined(package: ModuleType, family: type[Choice]) -> dict[str, type[Choice]]:
    """Every kind of a family that a module of the package defines, exported or not."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return {kind: member for kind, member in family.members().items() if member.__module__.startswith("runners.")}


def test_the_page_is_what_the_code_says(files: Mapping[str, str]) -> None:
    committed = {"tasks.md", *(f"tasks/{path.name}" for path in (DOCS / "tasks").glob("*.svg"))}
    assert committed == set(files), REMEDY
    assert not [name for name, text in files.items() if (DOCS / name).read_text(encoding="utf-8") != text], REMEDY


def test_every_task_and_evaluation_of_the_package_is_on_the_page_with_its_picture(files: Mapping[str, str]) -> None:
    text = files["tasks.md"]
    there = {**defined(runners.tasks, Task), **defined(runners.evaluations, Evaluation)}
    assert set(re.findall(r"\]\(tasks/(\w+)\.svg\)", text)) == set(there)
    assert {f"tasks/{kind}.svg" for kind in there} == set(files) - {"tasks.md"}
    assert [kind for kind in there if f"\n### {kind}\n" not in text or f"](#{kind})" not in text] == []


def test_every_field_has_a_row_in_its_section(files: Mapping[str, str]) -> None:
    for kind, member in {**defined(runners.tasks, Task), **defined(runners.evaluations, Evaluation)}.items():
        section = files["tasks.md"].partition(f"\n### {kind}\n")[2].partition("\n### ")[0]
        assert [name for name in member.model_fields if name != "kind" and f"\n| `{name}` | " not in section] == []


def test_every_link_has_a_heading_and_every_table_even_rows(files: Mapping[str, str]) -> None:
    text = files["tasks.md"]
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= headings
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_nothing_of_this_machine_is_on_the_page(files: Mapping[str, str], folder: Path) -> None:
    for name, text in files.items():
        assert str(folder.parent) not in text, name
        assert "documentation of Python 3" not in text, name


def test_pictures_do_not_depend_on_threads_or_the_random_state(files: Mapping[str, str], folder: Path) -> None:
    threads = torch.get_num_threads()
    torch.manual_seed(7)
    torch.set_num_threads(2)
    try:
        for kind in TASKS:
            assert task_picture(kind, folder) == files[f"tasks/{kind}.svg"]
        for kind in EVALUATIONS:
            assert evaluation_picture(kind, folder) == files[f"tasks/{kind}.svg"]
    finally:
        torch.set_num_threads(threads)


def test_every_picture_is_svg_whose_parts_lie_inside(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        if name.endswith(".svg"):
            tree = ElementTree.fromstring(text)
            height = float(tree.get("height", ""))
            places = [(float(each.get("x", "0")), float(each.get("y", "0"))) for each in tree.iter() if each.get("x")]
            assert all(0 <= x <= 640 and 0 <= y <= height for x, y in places), name
            boxes = [each for each in tree.iter(f"{SVG}rect") if (each.get("class") or "").startswith("cell")]
            assert all(float(box.get("x", "")) + float(box.get("width", "")) <= 640 for box in boxes), name


def test_a_line_to_copy_makes_the_spec_that_is_explained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    specs: dict[str, Task | Evaluation] = {kind: drawing.write(folder) for kind, drawing in EVALUATIONS.items()}
    specs |= {kind: drawing.write(folder) for kind, drawing in TASKS.items() if kind != "distillation"}  # no teacher
    for kind, spec in specs.items():
        imports, _, line = explain_choice(kind, "task", "evaluation").use.partition("; ")
        names: dict[str, object] = {}
        exec(imports, names)
        assert eval(line, names) == spec, line
        assert line == spec_line(spec, folder)


def strips(kind: str, folder: Path) -> list[Strip]:
    drawing = TASKS[kind]
    return [panel for panel in drawing.panels(drawing.small(folder)) if isinstance(panel, Strip)]


def words(strip: Strip, row: int) -> list[str]:
    return ["" if cell is None else cell.words for cell in strip.rows[row].cells]


@pytest.mark.parametrize("kind", ["associative_recall", "induction", "needle"])
def test_what_is_asked_followed_the_same_token_before(kind: str, folder: Path) -> None:
    for strip in strips(kind, folder):
        read, answers = words(strip, 0), words(strip, 1)
        asked = [at for at, answer in enumerate(answers) if answer]
        before = [read.index(read[at]) for at in asked]
        assert asked
        assert all(first < at for first, at in zip(before, asked, strict=True))
        assert [answers[at] for at in asked] == [read[first + 1] for first in before]
        assert list(strip.arcs) == [(first + 1, at) for first, at in zip(before, asked, strict=True)]


def test_a_selective_copy_asks_for_its_contents_in_their_order(folder: Path) -> None:
    for strip in strips("selective_copy", folder):
        read = words(strip, 0)
        assert [each for each in words(strip, 1) if each] == [each for each in read if each not in "·?"]
        assert all(read[at] == "?" for _, at in strip.arcs)


def test_a_verb_has_the_number_of_the_subject_that_an_arc_comes_from(folder: Path) -> None:
    for strip in strips("grammar", folder):
        read = words(strip, 0)
        assert strip.arcs
        for subject, verb in strip.arcs:
            assert read[verb].endswith("s") == (read[subject][0] == "n" and read[subject].endswith("s"))
            assert "stop" not in read[subject:verb]
        assert words(strip, 1)[:-1] == read[1:]


def test_answers_about_numbers_are_those_that_the_prompt_shows_next(folder: Path) -> None:
    for strip in strips("linear_functions", folder):
        assert words(strip, 2)[:-1:2] == words(strip, 1)[1::2]
    shown, hidden = strips("quantifiers", folder)
    numbers = [float(word) for word in words(hidden, 1)]
    expected = ["yes" if min(numbers[: at + 1]) > 0 else "no" for at in range(len(numbers))]
    assert words(hidden, 2) == words(shown, 2)[::2] == expected
    assert [float(word) for word in words(shown, 1)[1::2]] == [1.0 if each == "yes" else -1.0 for each in expected[:-1]]


def test_text_is_scored_from_the_prefix_on_and_not_where_a_token_is_replaced(folder: Path) -> None:
    plain, prefix, fixed, documents = strips("text", folder)
    assert words(plain, 1)[:-1] == words(plain, 0)[1:]
    assert [at for at, word in enumerate(words(prefix, 1)) if not word] == list(range(7))
    assert words(fixed, 0)[2] == "▢"
    assert [at for at, word in enumerate(words(fixed, 1)) if not word] == [1]
    assert words(documents, 0) == words(plain, 0)


def test_hidden_tokens_complete_a_sentence(folder: Path) -> None:
    whole = {
        "".join(line) for line in ("Heads look.", "A row sums.", "It is a sink.", "Rows sum to one.", "It looks back.")
    }
    for strip in strips("masked_text", folder):
        completed = [told or read for read, told in zip(words(strip, 0), words(strip, 1), strict=True)]
        assert "".join(completed).strip("⊣").replace("␣", " ") in whole


def test_boundary_values_are_those_of_the_predictor_that_is_drawn(folder: Path) -> None:
    panels: list[Panel] = EVALUATIONS["boundary_values"].panels(folder)
    (chart,) = (panel for panel in panels if isinstance(panel, Chart))
    truth, swept = (dict(series.points) for series in chart.series)
    assert truth == {x: x for x in truth}
    assert swept == pytest.approx({x: max(-LIMIT, min(LIMIT, x)) for x in truth}, abs=1e-4)


def test_a_kind_without_a_picture_names_the_file_that_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_drawings, "TASKS", {})
    with pytest.raises(SpecError, match=r"every task has a picture.*'needle' in runners/catalogue/task_drawings\.py"):
        explain_choice("needle", "task")
    monkeypatch.setattr(evaluation_drawings, "EVALUATIONS", {})
    with pytest.raises(SpecError, match=r"picture.*'large_value' in runners/catalogue/evaluation_drawings\.py"):
        explain_choice("large_value", "evaluation")


def test_a_field_without_words_and_a_measurement_without_a_unit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match=r"say that of 'blame' in store/analysis/metrics\.py"):
        told_of("blame")
    assert told_of("chance.multiple_choice_acc.some_set") == told_of("accuracy")
    monkeypatch.setattr("runners.catalogue.choice_words.field_words", lambda _: {"batch": "Said."})
    with pytest.raises(SpecError, match=r"docstring below it; Needle\.context has none"):
        field_rows(Needle)


def test_types_are_said_in_words() -> None:
    found = {row.name: row for row in field_rows(Needle)}
    assert found["distractors"].type == "int >= 0"
    assert found["depths"].type == "tuple of float >= 0, <= 1 at least 1"
    assert type_words(Text.model_fields["packing"].annotation) == '"across" or "documents"'
    assert {row.name: row.what for row in field_rows(Text)}["source"].endswith(" Outside the key.")


OWN = '''"""A task of the user's own."""
from typing import Literal
from runners import Needle
from runners.tasks import Task

class Mine(Task):
    """Mine: it asks for what I want."""

    kind: Literal["mine"] = "mine"
    batch: int = 3
    spread: float = 1.0
    """How far."""
    inputs = property(lambda self: Needle().inputs)
    length = property(lambda self: 9)

    def open(self) -> "MineData":
        raise NotImplementedError

class MineData:
    def evaluate(self):
        """Nothing yet."""
'''


def test_the_command_lists_and_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["tasks", "--json"]) == 0
    listed = {row["name"] for row in json.loads(capsys.readouterr().out)["data"]}
    assert set(TASKS) | set(EVALUATIONS) <= listed
    assert execute(["tasks", "large_value"]) == 0
    assert "a model of quantifiers" in capsys.readouterr().out
    assert execute(["tasks", "nedle"]) == 3
    assert "did you mean 'needle'?" in capsys.readouterr().err
    (tmp_path / "mine.py").write_text(OWN, encoding="utf-8")
    try:
        assert execute(["tasks", "--spec", str(tmp_path / "mine.py")]) == 0
        assert capsys.readouterr().out.split("\n")[1].split()[:3] == ["task", "mine", "Mine:"]
        assert execute(["tasks", "mine", "--spec", str(tmp_path / "mine.py")]) == 0
        told = capsys.readouterr().out
        assert all(each in told for each in ("Mine() in ", "How far.", "up to 9 positions", "Nothing yet."))
    finally:
        Task._members.pop("mine", None)
    (tmp_path / "none.py").write_text('"""Nothing."""\n', encoding="utf-8")
    assert execute(["tasks", "--spec", str(tmp_path / "none.py")]) == 2
    assert "defines neither task nor evaluation; leave --spec out" in capsys.readouterr().err


def test_a_page_that_is_written_loses_pictures_of_kinds_that_are_gone(
    tmp_path: Path, files: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.catalogue.tasks_page.page", lambda: files)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "gone.svg").write_text("", encoding="utf-8")
    assert write_page(tmp_path) == len(files)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")} == set(files)


def test_the_readme_leads_to_both_pages() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert "(docs/tasks.md)" in readme
    assert "(docs/probes.md)" in readme
