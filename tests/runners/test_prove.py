"""Proving the operators of a spec file: what is tried, what is said, how it ends."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from ablate.grid.errors import NotFoundError, SpecError
from ablate.runners.provenance.specfile import import_spec_file
from ablate.training.catalogue.prove import each_choice_once, operators_in, prove
from ablate.variants import Operator
from ablate.variants.laws.battery import LAWS
from ablate.variants.laws.examples import combinations_of_choices
from ablate.variants.stages.stage import Stage

SOUND = '''
import math
from typing import ClassVar, Literal
from torch import Tensor
from ablate.variants import LogScore, Number, Operator, softmax
from ablate.variants.papers.catalogue import named_operator

class Halved(LogScore):
    """Half the logit."""
    source: ClassVar[str] = "here"
    kind: Literal["halved_here"] = "halved_here"
    share: Number = Number(init=0.5)

    def log_score(self, a: Tensor, *, share: Tensor) -> Tensor:
        return a * share

    def oracle(self, a: float, *, share: float) -> float:
        return math.exp(a * share)

@named_operator("beyond")
def halved_operator() -> Operator:
    """Softmax of half the logit."""
    return Operator(name="halved", score=Halved(share=Number(init=0.25)))
'''
WRONG = SOUND.replace("math.exp(a * share)", "math.exp(a) * share")
GRID = """
from ablate.grid import Grid, over
from ablate import AdamW, LinearFunctions, Training, Trial
from ablate.variants import gpt2, principled

small = Grid(
    name="small",
    base=Trial(
        operator=principled(gate_width=4),
        model=gpt2(layers=1, heads=2, width=16),
        task=LinearFunctions(points=5),
        training=Training(steps=3, optimiser=AdamW(lr=1e-3)),
    ),
    axes=[over("operator.gate.strength.per", ["constant", "head"])],
    seeds=[0, 1],
)
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(text)
    return path


BESIDE = {
    "score halved_here normaliser sink",
    "principled score halved_here",
    "two signals score halved_here S=2",
    "forgetting selective score halved_here",
}


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labels of all operators that have the choice beside another; those in BESIDE alone are then proved."""
    labels: list[str] = []

    def few(own: Sequence[Stage]) -> list[Operator]:
        found = list(combinations_of_choices(own))
        labels.extend(operator.label for operator in found)
        return [operator for operator in found if operator.label in BESIDE]

    monkeypatch.setattr("ablate.training.catalogue.prove.combinations_of_choices", few)
    return labels


def test_a_choice_of_a_user_is_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str], beside: list[str]) -> None:
    assert prove(write(tmp_path, SOUND), None, full=True) == 0
    *own, _ = capsys.readouterr().out.splitlines()
    stated = len(LAWS) - 5
    assert [line.partition("; ")[0] for line in own[:2]] == [
        f"{name}: keeps {stated} of {stated} laws" for name in ("score halved_here", "halved")
    ]
    assert len(beside) > 20
    assert all("halved_here" in name for name in beside)
    assert {line.partition(":")[0] for line in own[2:]} == BESIDE


@pytest.mark.usefixtures("beside")
def test_what_is_wrong_beside_another_choice_only_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sunk = "return a * share + (1 if a.shape[-1] == 1 < a.shape[-2] else 0)\n"  # changes the logit of a sink
    assert prove(write(tmp_path, SOUND.replace("return a * share\n", sunk, 1)), None, full=True) == 4
    out, _ = capsys.readouterr()
    assert not any("BREAKS" in line for line in out.splitlines()[:2])
    assert any(line.startswith("score halved_here normaliser sink") and "BREAKS" in line for line in out.splitlines())


def test_a_wrong_formula_is_told_and_ends_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prove(write(tmp_path, WRONG), None, full=True) == 4
    out = capsys.readouterr().out
    head, *rest = out.partition("halved: ")[2].splitlines()
    assert head.startswith("keeps ")
    assert "BREAKS score, oracle, any numbers" in head
    assert re.match(r"  score: f\(-1\.3\), share=", rest[0])
    assert re.search(r"at head \d, query \d, channel \d", rest[1])
    assert "2 with a broken law" in rest[-1]


def test_an_error_in_a_formula_is_told_once_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raises = SOUND.replace("return a * share\n", "return a * share + a.missing\n", 1)
    assert prove(write(tmp_path, raises), "halved") == 4
    told = capsys.readouterr().out.splitlines()[1:-1]
    line = 1 + raises[: raises.index("a.missing")].count("\n")
    words = rf"Halved\.log_score, mine\.py:{line}: AttributeError: .* 'missing'.*; and \d\d more laws"
    assert len(told) == 1
    assert re.fullmatch(f"  finite: {words}", told[0])


def test_numbers_that_are_not_finite_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prove(write(tmp_path, SOUND.replace("return a * share\n", "return a.log() * share\n", 1)), "halved") == 4
    head, *told, _ = capsys.readouterr().out.splitlines()
    assert head == f"halved: keeps 0 of 1 laws; {len(LAWS) - 1} not tried; BREAKS finite"
    assert [line.partition(":")[0] for line in told] == ["  finite"]


def test_the_operators_of_a_grid_are_found_once_and_told_apart(tmp_path: Path) -> None:
    found, further = operators_in(import_spec_file(write(tmp_path, GRID)))
    assert further == []
    assert len({operator.label for operator in found}) == len(found) == 2
    assert all(operator.label.startswith("Principled (") for operator in found)


SCORES = 'over("operator.score", [Halved(), Halved(share=Number(init=0.75))], labels=["half", "more"])'
MANY = SOUND + GRID.replace('"head"])', f'"head"]), {SCORES}')


def choices(operator: Operator) -> set[tuple[str, str]]:
    return {(stage, choice.canonical) for stage, choice in operator.stages().items()}


def test_by_default_each_choice_is_tried_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of four cells have all gates and scores. Around softmax is no gate; the named one has another score."""
    path = write(tmp_path, MANY)
    every, further = operators_in(import_spec_file(path))
    few = each_choice_once(every)
    assert set().union(*map(choices, few)) == set().union(*map(choices, every))
    for place, operator in enumerate(few):
        assert not choices(operator) <= set().union(*map(choices, few[:place]))
    assert (len(every), len(few)) == (6, 5)
    assert further
    monkeypatch.setattr("ablate.training.catalogue.prove.LINE_EVERY_S", 0.0)
    assert prove(path, None) == 0
    out, err = capsys.readouterr()
    *lines, end = out.splitlines()
    assert [line.partition(": keeps ")[0] for line in lines] == [operator.label for operator in few]
    assert [re.sub(r"· \d+ s left ·", "·", line) for line in err.splitlines()] == [
        f"{done}/5 operators · at {operator.label}" for done, operator in enumerate(few) if done
    ]
    assert end.startswith("5 operators in ")


def test_a_law_that_is_declared_broken_or_has_nothing_to_try_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert prove(None, "selective") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "; breaks heads, as it says: " in " ".join(map(str.strip, lines))


def test_an_unknown_name_and_a_file_with_nothing_to_prove_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match="has nothing to prove, since a Command has no laws; define a Grid of trials, a choice"
    ):
        prove(write(tmp_path, "x = 1\n"), None)
    path = write(tmp_path, SOUND)
    with pytest.raises(NotFoundError, match=r"no operator 'halve' to prove; did you mean 'halved'\?"):
        prove(path, "halve")
