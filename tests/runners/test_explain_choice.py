"""`ablate tasks` and `ablate probes` say what the code says."""

import json
from pathlib import Path

import pytest

from grid.errors import SpecError
from runners.catalogue.choice_words import field_rows, measure_rows, spec_line, type_words
from runners.catalogue.explain_choice import FAMILIES, explain_choice, is_ours, kinds, make_example, make_fixture_files
from runners.cli.app import execute
from runners.tasks import Needle, Task
from runners.tasks.text.text import Text

KINDS = [(row.of, row.name) for row in kinds(*FAMILIES) if is_ours(FAMILIES[row.of].members()[row.name])]


@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_every_kind_of_the_package_is_explained_with_units(family: str, kind: str) -> None:
    explanation = explain_choice(kind, family)
    assert explanation.line
    assert explanation.needs
    assert [row for row in explanation.measures if not row.unit] == []
    assert (explanation.measures != ()) == (kind != "lm_eval")


@pytest.mark.parametrize(("family", "kind"), [each for each in KINDS if each[1] != "distillation"])
def test_the_python_shown_makes_the_example(family: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with make_fixture_files() as folder:
        monkeypatch.chdir(folder)
        spec = make_example(FAMILIES[family].members()[kind], folder)
        assert spec is not None
        imports, _, line = explain_choice(kind, family).use.partition("; ")
        names: dict[str, object] = {}
        exec(imports, names)
        assert eval(line, names) == spec
        assert line == spec_line(spec, folder)
        monkeypatch.undo()


def test_fields_without_a_docstring_or_measurements_without_a_unit_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SpecError, match="blame"):
        measure_rows({"blame": [{}]}, Needle.units)
    monkeypatch.setattr("runners.catalogue.choice_words.field_words", lambda _: {"batch": "Words."})
    with pytest.raises(SpecError, match=r"Needle\.context"):
        field_rows(Needle)


def test_measurements_of_predictors_and_sets_have_the_unit_of_the_model() -> None:
    rows = measure_rows({"accuracy": [{}], "chance.accuracy": [{}], "accuracy.some_set": [{}]}, Needle.units)
    assert [row.name for row in rows] == ["accuracy", "chance.accuracy", "accuracy.SET"]
    assert {(row.unit, row.better) for row in rows} == {("share of 1", "higher")}


def test_types_are_written_in_words() -> None:
    rows = {row.name: row for row in field_rows(Needle)}
    assert rows["distractors"].type == "int >= 0"
    assert rows["depths"].type == "tuple of float >= 0, <= 1 at least 1"
    assert type_words(Text.model_fields["packing"].annotation) == '"across" or "documents"'
    assert {row.name: row.what for row in field_rows(Text)}["source"].endswith(" Outside the key.")


OWN = '''"""A user's task."""
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


def test_the_tasks_command_lists_and_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["tasks", "--json"]) == 0
    names = {row["name"] for row in json.loads(capsys.readouterr().out)["data"]}
    assert {kind for family, kind in KINDS if family != "probe"} <= names
    assert execute(["tasks", "large_value"]) == 0
    assert "a model of quantifiers" in capsys.readouterr().out
    assert execute(["tasks", "nedle"]) == 3
    assert "did you mean 'needle'?" in capsys.readouterr().err
    (tmp_path / "mine.py").write_text(OWN, encoding="utf-8")
    try:
        assert execute(["tasks", "--spec", str(tmp_path / "mine.py")]) == 0
        assert capsys.readouterr().out.split("\n")[1].split()[:3] == ["task", "mine", "Mine:"]
        assert execute(["tasks", "mine", "--spec", str(tmp_path / "mine.py")]) == 0
        text = capsys.readouterr().out
        assert all(each in text for each in ("Mine() in ", "How far.", "up to 9 positions", "Nothing yet."))
    finally:
        Task._members.pop("mine", None)
    (tmp_path / "none.py").write_text('"""Nothing."""\n', encoding="utf-8")
    assert execute(["tasks", "--spec", str(tmp_path / "none.py")]) == 2
    assert "defines no task and no evaluation" in capsys.readouterr().err


def test_the_probes_command_lists_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["probes", "--json"]) == 0
    assert {"sink_share", "qk_logits"} <= {row["name"] for row in json.loads(capsys.readouterr().out)["data"]}
    assert execute(["probes", "gate_sparsity", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert [row["name"] for row in data["fields"]] == ["below"]
    assert data["measures"] == [
        {"name": "gate_sparsity", "of": "layer and head", "point": "{below}", "unit": "share of 1"}
    ]
    assert any("measures an output gate" in line for line in data["needs"])
    assert execute(["probes", "gate_sparsity"]) == 0
    assert "gate_sparsity" in capsys.readouterr().out
    assert execute(["probes", "needle"]) == 3
