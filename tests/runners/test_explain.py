"""`ablate operators` says what the code says."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from ablate import variants
from ablate.grid import SpecError
from ablate.runners.cli.app import execute
from ablate.training.catalogue.explain import explain, explain_kind, families, find_named, presets
from ablate.training.catalogue.explain_choice import explain_choice
from ablate.training.catalogue.explanation import PATHS, Explanation
from ablate.training.cli.catalogue import STAGES
from ablate.variants import Operator, Score, Transformer, attend
from ablate.variants.model.transformer import Tokens
from ablate.variants.papers.catalogue import PAPERS, catalogue, named_operator

SCORE = '''"""A file with two choices."""

import math
from typing import ClassVar, Literal

from torch import Tensor

from ablate.variants import LogScore, Number


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


def command_text(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert execute(["operators", *arguments]) == 0
    return capsys.readouterr().out


def test_the_list_has_every_named_operator_with_its_paper(capsys: pytest.CaptureFixture[str]) -> None:
    rows = command_data(capsys)
    assert {row["operator"]: row["paper"] for row in rows} == {each.name: each.paper for each in catalogue().values()}
    text = command_text(capsys)
    assert [name for name in catalogue() if name not in text] == []
    for paper in PAPERS:
        assert {row["paper"] for row in command_data(capsys, "--paper", paper)} == {paper}


@pytest.mark.parametrize("name", catalogue())
def test_an_operator_is_explained_whole(name: str) -> None:
    known = find_named(name)
    operator, found = known.make(), explain(known, "icl")
    assert known.line.endswith(".")
    of_parts = [
        number for number in operator.numbers() if number.split(".")[0] in {part.stage for part in found.formulas}
    ]
    assert [row.number for row in found.numbers] == of_parts
    assert all(row.start and row.varies and row.range for row in found.numbers)
    assert all(part.formula for part in found.formulas)
    assert len(found.limits) == len(known.limits)
    assert set(known.pitfalls) <= set(found.pitfalls)
    assert found.breaks == operator.breaks
    assert "yes" in found.paths.values()
    scope: dict[str, object] = {}
    exec(found.use, scope)
    assert scope[name] is known.make


def command_data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    answer = json.loads(command_text(capsys, *arguments, "--json"))
    assert answer["schema"] == "ablate/operators/1"
    return answer["data"]


def test_the_page_of_ssa_says_what_a_user_asks(capsys: pytest.CaptureFixture[str]) -> None:
    data = command_data(capsys, "ssa")
    n_link = {"name": "n_link", "default": "at_least_one", "values": ["at_least_one", "positive"]}
    assert n_link in data["arguments"]
    assert [(row["number"], row["spec"]["init"], row["spec"]["per"]) for row in data["numbers"]] == [
        ("score.n", 1.5, ["layer", "head"]),
        ("score.b", 1.0, ["layer", "head"]),
    ]
    assert command_data(capsys, "principled_gate")["options"] == {"gate.width": 16, "gate.dims": "add"}
    plain = command_data(capsys, "softmax")
    assert [part["stage"] for part in plain["formulas"]] == ["product", "score", "normaliser", "readout"]


def test_a_stage_lists_its_kinds_and_a_kind_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    rows = command_data(capsys, "stages")
    assert {(row["stage"], row["kind"]) for row in rows} == {
        (stage, kind) for stage, family in families().items() for kind in family.members()
    }
    assert command_data(capsys, "score") == [row for row in rows if row["stage"] == "score"]
    assert {STAGES, *families()} & catalogue().keys() == set()  # no named operator is hidden behind a stage
    assert STAGES not in families()


def test_as_many_parameters_are_counted_as_a_model_has() -> None:
    model = presets()["icl"]()
    real = Transformer(model, (variants.principled(),) * model.layers, inputs=Tokens(2), seed=0)
    assert explain(find_named("principled"), "icl").added == real.operator_parameters()


def test_a_model_that_cannot_carry_it_says_why() -> None:
    assert explain(find_named("integral"), "llama2_125m").added == 0
    found = explain(find_named("integral"), "pythia_125m")  # a quarter of 12 channels is an odd number
    assert found.added is None
    assert "signals" in found.reason


def test_a_function_that_cannot_be_listed_is_refused() -> None:
    def ssa() -> Operator:
        """An operator of this test."""

    def mute() -> Operator: ...

    def bare(n: float) -> Operator:
        """An operator of this test."""

    before = catalogue()
    for make, words in ((ssa, "already an operator"), (mute, "no docstring"), (bare, r"gives no default to \['n'\]")):
        with pytest.raises(SpecError, match=words):
            named_operator("beyond")(make)
    assert catalogue() == before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("sas", 3, "'ssa'"),
        ("score sssa", 3, "'sssa'"),
        ("ssa --model gpt2_smal", 3, "'gpt2_small'"),
        ("--paper 7", 2, "paper"),
        ("score --model icl", 2, "--model"),
        ("ssa --length 5", 2, "--paths"),
        ("ssa --paths --length 0", 2, "--length"),
    ],
)
def test_the_nearest_is_told(arguments: str, code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["operators", *arguments.split()]) == code
    assert words in capsys.readouterr().err


NAMED = '''

from ablate.variants import Operator, named_operator


@named_operator("beyond")
def softer(power: float = 2.0) -> Operator:
    """Softmax, but gentler."""
    return Operator(name="Softer!", score=Gentle(g={"init": power}))
'''


def test_operators_of_a_spec_file_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SCORE + NAMED, encoding="utf-8")
    rows = command_data(capsys, "--spec", str(path))
    assert [(row["kind"], row["name"]) for row in rows] == [
        ("operator", "softer"), ("score", "gentle"), ("score", "steeper")
    ]  # fmt: skip
    assert "softer" in command_text(capsys, "--paper", "beyond", "--spec", str(path))
    assert "gentle" in command_text(capsys, "stages", "--spec", str(path))
    (tmp_path / "empty.py").write_text("x = 1\n", encoding="utf-8")
    assert execute(["operators", "--spec", str(tmp_path / "empty.py")]) == 2


def test_examples_of_the_guide_keep_all_laws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[2]
    examples = re.findall(r"```python\n(.*?)```", (root / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    imports = (root / "variants" / "stages" / "scores.py").read_text(encoding="utf-8").splitlines()
    guide_imports = "from ablate.variants import Limit, Operator, named_operator, softmax"
    lines = [guide_imports, *(line for line in imports if line.startswith(("import ", "from "))), *examples]
    path = tmp_path / "guide.py"
    path.write_text("\n".join(lines), encoding="utf-8")
    rows = command_data(capsys, "--spec", str(path))
    assert {(row["kind"], row["name"]) for row in rows} == {("operator", "softcapped"), ("score", "softcap")}
    assert execute(["prove", str(path), "--operator", "score softcap"]) == 0
    known = find_named("softcapped")
    assert known.make().score == Score.members()["softcap"].example()
    q, k, v = torch.randn(3, 1, 2, 13, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for limit in known.limits:
        numbers = {name: torch.full((1, 1, 1, 1), value).double() for name, value in limit.numbers.items()}
        came, expected = attend(known.make(), q, k, v, numbers=numbers), attend(limit.to(), q, k, v)
        assert (came.output - expected.output).abs().max() <= limit.within


def test_paths_say_which_is_chosen_and_why_others_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["operators", "ssa", "--paths", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["data"]
    assert [(row["path"], row["chosen"]) for row in rows] == [
        ("sdpa", "no"), ("linear", "no"), ("triton", "no"), ("cpu", "yes"), ("reference", "no")
    ]  # fmt: skip


@pytest.mark.skipif(find_spec("triton") is None, reason="path triton needs the package")
def test_paths_are_those_of_a_precision(capsys: pytest.CaptureFixture[str]) -> None:
    for precision, chosen in (("float32", "reference"), ("bfloat16", "triton")):
        words = ["operators", "ssa", "--paths", "--device", "cuda", "--precision", precision, "--json"]
        assert execute(words) == 0
        rows = json.loads(capsys.readouterr().out)["data"]
        assert [row["path"] for row in rows if row["chosen"] == "yes"] == [chosen]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("operators ssa", explain(find_named("ssa"))),
        ("operators integral", explain(find_named("integral"))),
        ("operators score ssa", explain_kind("score", "ssa")),
        ("tasks needle", explain_choice("needle", "task")),
        ("tasks length_extrapolation", explain_choice("length_extrapolation", "evaluation")),
        ("probes sink_share", explain_choice("sink_share", "probe")),
    ],
)
def test_commands_and_pages_write_every_fact_of_one_record(
    words: str, found: Explanation, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs" / f"{words.split()[0]}.md"
    section = page.read_text(encoding="utf-8").partition(f"\n### {found.name}\n")[2].partition("\n### ")[0]
    assert execute(words.split()) == 0
    shown, written = (" ".join(text.replace("\\", "").split()) for text in (capsys.readouterr().out, section))
    for facts in found.facts():
        for row in facts.rows:
            for cell in row if facts.headings else (row,):
                text = " ".join(str(cell).split())
                assert text in shown
                if found.use and facts.heading not in (PATHS, "parts"):
                    assert text.replace("`", "") in written.replace("`", "")
