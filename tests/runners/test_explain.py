"""What `ablate operators` says is what the code says."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import variants
from grid import SpecError
from runners.cli import execute
from runners.explain import explain, explain_kind, families, find_named, presets, stage_kinds
from runners.specfile import import_spec_file
from runners.stage_words import number_rows
from variants import LogScore, Operator, Score, Stage, Transformer
from variants.papers.named import PAPERS, catalogue, named
from variants.transformer import Tokens

SCORE = '''"""A file with two choices."""

import math
from typing import ClassVar, Literal

from torch import Tensor

from variants import LogScore, Number


class Gentle(LogScore):
    """exp(a / g): a gentler exponential."""

    source: ClassVar[str] = "nowhere"
    kind: Literal["gentle"] = "gentle"
    g: Number = Number(init=2.0, link="positive")
    """How gentle: the divisor g."""

    def log_score(self, a: Tensor, *, g: Tensor) -> Tensor:
        return a / g

    def oracle(self, a: float, *, g: float) -> float:
        return math.exp(a / g)


class Steeper(Gentle):
    """exp(g a)."""

    kind: Literal["steeper"] = "steeper"

    def log_score(self, a: Tensor, *, g: Tensor) -> Tensor:
        return a * g

    def oracle(self, a: float, *, g: float) -> float:
        return math.exp(a * g)
'''


def forget() -> None:
    for family in (Score, LogScore):
        for kind in ("gentle", "steeper"):
            family._members.pop(kind, None)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert execute(["operators", *arguments]) == 0
    return capsys.readouterr().out


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> object:
    answer = json.loads(said(capsys, *arguments, "--json"))
    assert answer["schema"] == "ablate/operators/1"
    return answer["data"]


def test_the_list_has_every_named_operator_with_its_paper(capsys: pytest.CaptureFixture[str]) -> None:
    rows = told(capsys)
    assert isinstance(rows, list)
    assert {row["operator"]: row["paper"] for row in rows} == {each.name: each.paper for each in catalogue().values()}
    text = said(capsys)
    assert [name for name in catalogue() if name not in text] == []


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_s_list_has_its_operators_only(paper: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = told(capsys, "--paper", paper)
    assert isinstance(rows, list)
    assert {row["paper"] for row in rows} == {paper}


@pytest.mark.parametrize("name", catalogue())
def test_an_operator_is_explained_whole(name: str) -> None:
    known = find_named(name)
    operator, found = known.make(), explain(known, "icl")
    assert known.line.endswith(".")
    of_parts = [number for number in operator.numbers() if number.split(".")[0] in {part.stage for part in found.parts}]
    assert [row.number for row in found.numbers] == of_parts
    assert all(part.formula for part in found.parts)
    assert len(found.limits) == len(known.limits)
    assert set(known.traps) <= set(found.traps)
    assert found.breaks == operator.breaks
    assert "yes" in found.paths.values()
    scope: dict[str, object] = {}
    exec(found.use, scope)
    assert scope[name] is known.make


@pytest.mark.parametrize("member", [f"{row.stage} {row.kind}" for row in stage_kinds()])
def test_every_kind_says_what_it_is_and_what_its_numbers_are(member: str) -> None:
    found = explain_kind(*member.split())
    assert found.part.formula
    assert [row.number for row in found.numbers if not row.what] == []


def test_the_page_of_ssa_says_what_a_user_asks(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "ssa", "--model", "icl")
    for words in (
        "Scaled Signed Averaging (arXiv 2508.14685)",
        "from variants import ssa; ssa()",
        "f(a) = (1 + b |a|) ** (n sgn a)",
        "Scaled Signed Averaging, eq. 5",
        "per='head'  one of 'constant', 'layer', 'head', 'query'",
        "per head",
        "(1, inf) at_least_one",
        "parameters added to icl: 192",
        "n, 1/b -> inf: softmax",
        "sdpa: sdpa computes score",
        "reference: yes",
    ):
        assert words in text, words


def test_added_parameters_are_those_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    operator, model = variants.principled(), presets()["icl"]()
    built = Transformer(model, (operator,) * model.layers, inputs=Tokens(3), seed=1)
    data = told(capsys, "principled", "--model", "icl")
    assert isinstance(data, Mapping)
    assert data["added"] == f"{built.operator_parameters():,}"


def test_a_model_that_cannot_carry_it_says_why() -> None:
    assert explain(find_named("integral"), "llama2_125m").added == "0"
    found = explain(find_named("integral"), "pythia_125m").added  # a quarter of 12 channels is an odd number
    assert found.startswith("does not fit: ")
    assert "signals.count=" in found


def test_softmax_is_explained_by_the_stages_that_make_it(capsys: pytest.CaptureFixture[str]) -> None:
    data = told(capsys, "softmax")
    assert isinstance(data, Mapping)
    assert [part["stage"] for part in data["parts"]] == ["product", "score", "normaliser", "readout"]
    assert data["numbers"] == []


def test_a_stage_lists_its_kinds_and_a_kind_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    rows = told(capsys, "--stages")
    assert isinstance(rows, list)
    assert {(row["stage"], row["kind"]) for row in rows} == {
        (stage, kind) for stage, family in families().items() for kind in family.members()
    }
    of_score = told(capsys, "score")
    assert of_score == [row for row in rows if row["stage"] == "score"]
    data = told(capsys, "score", "ssa")
    assert isinstance(data, Mapping)
    assert data["used_by"][0] == "ssa"
    assert [row["number"] for row in data["numbers"]] == ["n", "b"]
    assert "named operators that have it\n  - ssa" in said(capsys, "score", "ssa")


def ssa() -> Operator:
    """Of this test."""
    return Operator()


def mute() -> Operator:
    return Operator()


def bare(n: float) -> Operator:
    """Of this test."""
    return Operator()


@pytest.mark.parametrize(
    ("make", "words"),
    [(ssa, "already an operator of variants.papers.ssa"), (mute, "a docstring"), (bare, r"gives none to \['n'\]")],
)
def test_a_function_that_cannot_be_listed_is_refused(make: Callable[..., Operator], words: str) -> None:
    before = catalogue()
    with pytest.raises(SpecError, match=words):
        named("beyond")(make)
    assert catalogue() == before


def test_no_named_operator_is_hidden_behind_a_stage() -> None:
    assert families().keys() & catalogue().keys() == set()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["sas"], 3, "did you mean 'ssa'"),
        (["exponential"], 3, "`ablate operators score exponential` explains it"),
        (["score", "sssa"], 3, "stage score has no kind 'sssa'"),
        (["scor", "ssa"], 3, "did you mean 'score'"),
        (["ssa", "--model", "gpt2_smal"], 3, "did you mean 'gpt2_small'"),
        (["--paper", "7"], 2, "a paper is one of 000, 001"),
        (["--stages", "--paper", "003"], 2, "leave them out"),
        (["ssa", "--paper", "003"], 2, "leave --paper out"),
        (["--model", "icl"], 2, "give its name"),
        (["score", "--model", "icl"], 3, "there is no operator 'score'"),
    ],
)
def test_a_wrong_name_is_told_the_nearest(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["operators", *arguments]) == code
    assert words in capsys.readouterr().err


def test_a_choice_of_a_user_s_file_is_explained_by_its_class(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SCORE, encoding="utf-8")
    try:
        import_spec_file(path)
        found = explain_kind("score", "steeper")
        assert found.part.formula == "exp(g a)."
        assert [row.what for row in found.numbers] == ["How gentle: the divisor g."]
    finally:
        forget()


def test_a_choice_typed_at_a_prompt_is_explained_without_its_file() -> None:
    try:
        exec(SCORE, {"__name__": "prompt"})
        found = explain_kind("score", "gentle")
        assert found.part.formula == "exp(a / g): a gentler exponential."
        assert [(row.number, row.start, row.what) for row in found.numbers] == [("g", "2", "")]
        assert execute(["operators", "gentle"]) == 3
    finally:
        forget()


def test_every_number_of_a_named_operator_starts_somewhere() -> None:
    for known in catalogue().values():
        for stage in known.make().stages().values():
            assert isinstance(stage, Stage)
            assert all(row.start and row.varies and row.range for row in number_rows(stage))
