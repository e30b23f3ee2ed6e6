"""Proving the operators of a spec file: what is tried, what is said, how it ends."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from definitions import forgotten

from grid.errors import NotFoundError, SpecError
from runners.prove import operators_of, prove
from variants.proof.battery import LAWS

SOUND = '''
import math
from typing import ClassVar, Literal
from torch import Tensor
from variants import LogScore, Number, Operator, softmax
from variants.papers.named import named

class Halved(LogScore):
    """Half the logit."""
    source: ClassVar[str] = "here"
    kind: Literal["halved_here"] = "halved_here"
    share: Number = Number(init=0.5)

    def log_score(self, a: Tensor, *, share: Tensor) -> Tensor:
        return a * share

    def oracle(self, a: float, *, share: float) -> float:
        return math.exp(a * share)

@named("beyond")
def halved_operator() -> Operator:
    """Softmax of half the logit."""
    return Operator(name="halved", score=Halved(share=Number(init=0.25)))
'''
WRONG = SOUND.replace("math.exp(a * share)", "math.exp(a) * share")
GRID = """
from grid import Grid, over
from runners import AdamW, LinearFunctions, Training, Trial
from variants import gpt2, principled

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


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """What a spec file of a test defines is no choice of the package."""
    with forgotten():
        yield


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(text)
    return path


def test_a_choice_of_the_user_s_is_proved_with_a_line_on_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prove(write(tmp_path, SOUND), None) == 0
    out, err = capsys.readouterr()
    silent, stated = "identities, limits, ties, running means, small weights", len(LAWS) - 5
    assert out.splitlines() == [
        f"score halved_here: keeps {stated} of {stated} laws; nothing stated for {silent}",
        f"halved: keeps {stated} of {stated} laws; nothing stated for {silent}",
    ]
    assert re.fullmatch(
        r"2 operators in \d+ s: no law is broken that is not declared\n", err.splitlines(keepends=True)[-1]
    )


def test_a_wrong_formula_is_told_with_what_came_and_ends_with_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prove(write(tmp_path, WRONG), "halved") == 4
    out, err = capsys.readouterr()
    head, *rest = out.splitlines()
    assert head.startswith("halved: keeps ")
    assert "BREAKS oracle, few keys, any numbers" in head
    assert any(line.startswith("  oracle: expected ") and "for a causal mask" in line for line in rest)
    assert "1 operator in" in err
    assert "1 with a broken law" in err


def test_the_operators_of_a_grid_are_found_once_and_told_apart(tmp_path: Path) -> None:
    found = operators_of(write(tmp_path, GRID))
    assert len(found) == 2
    assert len({operator.label for operator in found}) == 2
    assert all(operator.label.startswith("Principled (") for operator in found)


def test_a_broken_law_that_is_declared_is_said_and_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert prove(None, "selective") == 0
    assert "; breaks heads, as it says: " in capsys.readouterr().out


def test_a_law_with_nothing_to_try_counts_neither_as_kept_nor_as_broken(capsys: pytest.CaptureFixture[str]) -> None:
    assert prove(None, "softmax") == 0
    said = capsys.readouterr().out
    silent = said.partition("; nothing stated for ")[2].strip().split(", ")
    assert {"limits", "identities", "training"} <= set(silent)
    assert f"softmax: keeps {len(LAWS) - len(silent)} of {len(LAWS) - len(silent)} laws;" in said
    assert prove(None, "ssa") == 0
    assert "limits" not in capsys.readouterr().out


def test_an_unknown_name_gets_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, SOUND)
    with pytest.raises(NotFoundError, match=r"no operator 'halve' to prove; did you mean 'halved'\?"):
        prove(path, "halve")
    with pytest.raises(NotFoundError, match=r"no operator 'zzz' to prove; there are score halved_here, halved$"):
        prove(path, "zzz")


def test_a_file_with_nothing_to_prove_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is nothing to prove; define a Grid, or a choice"):
        prove(write(tmp_path, "x = 1\n"), None)
