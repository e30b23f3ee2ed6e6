"""`ablate tasks` and `ablate probes` say what the code says."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ablate.grid.errors import SpecError
from ablate.training.catalogue.choice_words import field_rows, measure_rows, spec_line
from ablate.training.catalogue.explain_choice import (
    FAMILIES,
    explain_choice,
    is_ours,
    kinds,
    make_example,
    make_fixture_files,
)
from ablate.training.tasks import Needle, Task

KINDS = [(row.of, row.name) for row in kinds(*FAMILIES) if is_ours(FAMILIES[row.of].members()[row.name])]


@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_every_kind_of_the_package_is_explained_and_the_python_shown_makes_the_example(
    family: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    explanation = explain_choice(kind, family)
    assert explanation.line
    assert explanation.needs
    assert [row for row in explanation.measures if not row.unit] == []
    assert (explanation.measures != ()) == (kind != "lm_eval")
    if kind == "distillation":  # its teacher exists on paper alone
        return
    with make_fixture_files() as folder:
        monkeypatch.chdir(folder)
        spec = make_example(FAMILIES[family].members()[kind], folder)
        assert spec is not None
        imports, _, line = explanation.use.partition("; ")
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
    monkeypatch.setattr("ablate.training.catalogue.choice_words.field_words", lambda _: {"batch": "Words."})
    with pytest.raises(SpecError, match=r"Needle\.context"):
        field_rows(Needle)


def test_measurements_of_predictors_and_sets_have_the_unit_of_the_model() -> None:
    rows = measure_rows({"accuracy": [{}], "chance.accuracy": [{}], "accuracy.some_set": [{}]}, Needle.units)
    assert [row.name for row in rows] == ["accuracy", "chance.accuracy", "accuracy.SET"]
    assert {(row.unit, row.better) for row in rows} == {("share of 1", "higher")}


OWN = '''"""A user's task."""
from typing import Literal
from ablate import Needle
from ablate.training.tasks import Task

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


def test_the_tasks_command_lists_and_explains(
    tmp_path: Path, ablate: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {row["name"] for row in json.loads(ablate("tasks", "--json").out)["data"]}
    assert {kind for family, kind in KINDS if family != "probe"} <= names
    assert "did you mean 'needle'?" in ablate("tasks", "nedle", code=3).err
    assert json.loads(ablate("tasks", "text", "BytePairs", "--json").out)["data"]["fields"][0]["name"] == "vocabulary"
    assert "did you mean 'BytePairs'?" in ablate("tasks", "text", "BytePair", code=3).err
    (tmp_path / "mine.py").write_text(OWN, encoding="utf-8")
    monkeypatch.setattr(Task, "_members", {**Task._members})
    text = ablate("tasks", "mine", "--spec", tmp_path / "mine.py").out
    assert all(each in text for each in ("Mine() in ", "How far.", "up to 9 positions", "Nothing yet."))
    (tmp_path / "none.py").write_text('"""Nothing."""\n', encoding="utf-8")
    assert "defines no task and no evaluation" in ablate("tasks", "--spec", tmp_path / "none.py", code=2).err


def test_the_probes_command_lists_and_explains(ablate: Callable) -> None:
    assert {"sink_share", "qk_logits"} <= {row["name"] for row in json.loads(ablate("probes", "--json").out)["data"]}
    data = json.loads(ablate("probes", "gate_sparsity", "--json").out)["data"]
    assert [row["name"] for row in data["fields"]] == ["below"]
    assert data["measures"] == [
        {"name": "gate_sparsity", "of": "layer and head", "point": "{below}", "unit": "share of 1"}
    ]
    ablate("probes", "needle", code=3)
    assert "`ablate probes attention_entropy`" in ablate("probes", "entropy_last", code=3).err
