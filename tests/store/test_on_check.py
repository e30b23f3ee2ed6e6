"""Was a component on: what the rows of knock-outs of both arms say about one comparison."""

import math
from collections.abc import Mapping

import pytest

from ablate.store.analysis.knockout_rows import Change, Operators, differing
from ablate.store.analysis.on_check import KnockedOut
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.statistics.check import Check

BAND = 0.03
LOSS = GridMeasure("loss", {}, "linear", "lower", BAND, 0.05)
NONE = {"gate": {"kind": "none"}, "margin": {"kind": "none"}, "name": "a"}
OWN = 2.0
OFF, ON, FAINT, HURTS = (0.0001, -0.001, 0.0), (0.3, 0.04, 0.2), (0.01, 0.02, 0.01), (-0.3, -0.2, -0.1)
USED = {"uniform": (0.5, 0.4, 0.6)}


def operator(**stages: object) -> Operators:
    return Operators({**NONE, **stages}, NONE, {"share": 1.0})


def margin(per: tuple[str, ...] = (), init: float = 0.0, **more: object) -> dict[str, object]:
    return {"kind": "log_count", "amplification": {"init": init, "per": list(per), "learned": None, **more}}


SOFTMAX, MARGIN = operator(), operator(margin=margin())


def compare(
    ours: Mapping[str, tuple[float, ...]] | None,
    theirs: Mapping[str, tuple[float, ...]] | None = USED,
    *,
    operators: tuple[Operators, Operators] = (MARGIN, SOFTMAX),
    by: GridMeasure = LOSS,
    error: float | None = 0.0,
    own: float = OWN,
) -> Check:
    rows = {
        cell: {
            name: {seed: Change(own, change, error, 100) for seed, change in enumerate(of)} for name, of in sets.items()
        }
        for cell, sets in (("cell", ours), ("base", theirs))
        if sets is not None
    }
    return KnockedOut(by, rows, dict(zip(("cell", "base"), operators, strict=True))).compare("cell", "base")


@pytest.mark.parametrize(
    ("change", "answer", "word"),
    [(OFF, "no", "off"), (ON, "yes", "on"), (HURTS, "yes", "on, and it hurts"), (FAINT, "unknown", "faint")],
)
def test_one_component_against_softmax(change: tuple[float, ...], answer: str, word: str) -> None:
    found = compare({**USED, "margin": change, "all": change})
    assert (found.answer, found.word) == (answer, word)
    flipped = compare(USED, {**USED, "margin": change, "all": change}, operators=(SOFTMAX, MARGIN))
    assert (flipped.answer, flipped.word) == (answer, word)  # in whichever arm it is


def test_a_refit_within_the_band_is_no_more_than_a_scale() -> None:
    rows = {**USED, "margin": ON, "all": ON}
    assert "no more" in compare({**rows, "refit": (0.01, -0.02, 0.0)}).word
    assert compare({**rows, "refit": (0.01, 0.04, 0.0)}).word == "on"


def test_a_refit_of_one_component_decides_where_only_it_differs() -> None:
    both, gated = operator(gate={"kind": "sigmoid"}, margin=margin()), operator(gate={"kind": "sigmoid"})
    ours = {**USED, "gate": ON, "margin": ON, "gate+margin": ON, "all": ON, "refit": ON}
    theirs = {**USED, "gate": ON, "all": ON}
    assert compare(ours, theirs, operators=(both, gated)).word == "on"
    singly = {**ours, "refit-margin": (0.01, -0.02, 0.0), "refit-gate": ON}
    decided = compare(singly, theirs, operators=(both, gated))
    assert decided.word == compare({**USED, "margin": ON, "all": ON, "refit": (0.02,) * 3}).word
    assert decided.number == pytest.approx(0.02)
    whole = compare(singly, operators=(both, SOFTMAX))  # all of it together decides, and each alone is told
    assert (whole.word, whole.number) == ("on", pytest.approx(0.04))
    assert "0.02 " in whole.reason


def test_refits_of_some_runs_say_nothing_of_all() -> None:
    sizes = {"none": OWN, "gate": 0.3, "margin": 0.3, "gate+margin": 0.3, "all": 0.3, "refit": 0.3}
    rows = {name: {seed: Change(OWN, size, 0.0, 100) for seed in (0, 1)} for name, size in sizes.items()}
    both, compared = operator(gate={"kind": "sigmoid"}, margin=margin()), {"cell": rows, "base": {"none": {}}}
    some = {**compared, "cell": {**rows, "refit-margin": {0: Change(OWN, 0.0, 0.0, 100)}}}
    checks = [
        KnockedOut(LOSS, of, {"cell": both, "base": SOFTMAX}, {"cell": {0, 1}}).compare("cell", "base")
        for of in (compared, some)
    ]
    assert checks[0] == checks[1]


def test_of_several_components_those_in_which_both_differ_decide() -> None:
    both = operator(gate={"kind": "sigmoid"}, margin=margin())
    gated = operator(gate={"kind": "sigmoid"})
    ours = {**USED, "gate": ON, "margin": OFF, "gate+margin": ON, "all": ON}
    assert compare(ours, {**USED, "gate": ON, "all": ON}, operators=(both, gated)).word == "off"
    assert compare(ours, operators=(both, SOFTMAX)).word == "on"
    assert compare({**USED, "gate": ON, "margin": OFF}, operators=(both, SOFTMAX)).answer == "unknown"


def test_stages_that_go_together_count_for_each_of_them() -> None:
    ground = operator(normaliser={"kind": "ground"}, readout={"kind": "ground_value"})
    other = operator(normaliser={"kind": "ground", "threshold": 1}, readout={"kind": "ground_value"})
    rows = {**USED, "normaliser+readout": OFF, "all": OFF}
    assert compare(rows, rows, operators=(ground, other)).word == "off"


@pytest.mark.parametrize(
    ("mean", "answer", "word"), [(OFF, "no", "does not vary"), (ON, "yes", "varies"), (FAINT, "unknown", "faint")]
)
def test_granularities_differ_if_the_numbers_vary(mean: tuple[float, ...], answer: str, word: str) -> None:
    finer = operator(margin=margin(("layer", "head")))
    rows = {**USED, "margin": ON, "all": ON}
    found = compare({**rows, "mean-margin-constant": mean}, rows, operators=(finer, MARGIN))
    assert (found.answer, found.word) == (answer, word)
    assert compare(rows, rows, operators=(finer, MARGIN)).answer == "unknown"
    moved = operator(margin=margin(("layer", "head"), init=1.0))
    assert (
        compare({**rows, "mean-margin-constant": mean}, rows, operators=(moved, MARGIN)).word == "on"
    )  # more than sharing


def test_only_the_mean_over_the_coarser_arm_decides() -> None:
    head, layer = operator(margin=margin(("layer", "head"))), operator(margin=margin(("layer",)))
    ours = {**USED, "margin": ON, "all": ON, "mean-margin-layer": OFF, "mean-margin-constant": ON}
    theirs = {**USED, "margin": ON, "all": ON, "mean-margin-constant": ON}
    assert compare(ours, theirs, operators=(head, layer)).word == "does not vary"
    assert compare(theirs, ours, operators=(layer, head)).word == "does not vary"
    assert compare(ours, theirs, operators=(head, MARGIN)).word == "varies"
    two = operator(margin={**margin(), "other": {"init": 0.0, "per": ["layer"]}})
    finer = operator(margin={**margin(("layer", "head")), "other": {"init": 0.0, "per": ["layer", "head"]}})
    for name in ("mean-margin-constant-layer", "mean-margin-layer-constant"):
        assert compare({**USED, name: ON}, theirs, operators=(finer, two)).word == "varies"


def test_off_beside_other_changes_is_no_verdict_of_off() -> None:
    faster = MARGIN._replace(others={"training": {"lr": 0.1}})
    found = compare({**USED, "margin": OFF, "all": OFF}, operators=(faster, SOFTMAX))
    assert found.answer == "no"
    assert found.word != "off"
    assert "training" in found.reason


def test_a_knock_out_of_some_runs_says_nothing_of_all() -> None:
    rows = {"cell": {"none": {0: Change(OWN, OWN, 0.0, 1)}, "all": {0: Change(OWN, 0.0, 0.0, 1)}}, "base": {"none": {}}}
    found = KnockedOut(LOSS, rows, {"cell": MARGIN, "base": SOFTMAX}, {"cell": {0, 1}}).compare("cell", "base")
    assert (found.answer, found.word) == ("unknown", "")


def test_a_refit_with_too_few_items_decides_nothing() -> None:
    rows = {"cell": {name: {0: Change(OWN, 0.5, 0.0, 100)} for name in ("margin", "all")}, "base": {}}
    for error, more in ((0.0, False), (0.5, True)):
        refit = {"refit": {0: Change(OWN, 0.0, error, 100)}}
        known = KnockedOut(LOSS, {**rows, "cell": {**rows["cell"], **refit}}, {"cell": MARGIN, "base": SOFTMAX})
        assert (known.compare("cell", "base").word == "on") == more


def test_what_was_not_measured_is_unknown_and_the_same_operator_is_no_question() -> None:
    assert compare(None).answer == "unknown"
    assert compare({**USED, "margin": ON, "all": ON}, None).answer == "unknown"
    assert compare(USED).answer == "unknown"
    assert compare({}, {}, operators=(SOFTMAX, SOFTMAX)).answer == "-"
    assert KnockedOut(LOSS, {}, {}).compare("cell", "base").answer == "unknown"
    renamed = operator(name="another")
    assert compare({}, {}, operators=(renamed, SOFTMAX)).answer == "-"
    assert compare({**USED, "margin": ON, "all": ON}, by=LOSS._replace(rope=0.0)).answer == "unknown"


def test_runs_that_did_not_learn_say_nothing() -> None:
    operators = {"cell": MARGIN, "base": SOFTMAX}
    rows = {"cell": {"all": dict[int, Change]()}, "base": {"uniform": {0: Change(OWN, 0.5, 0.0, 100)}}}
    found = KnockedOut(LOSS, rows, operators, of_learners=True).compare("cell", "base")
    assert (found.answer, found.number) == ("unknown", None)


def test_a_task_that_uses_no_attention_judges_nothing() -> None:
    little = {"uniform": (0.01, -0.02, 0.0)}
    assert compare({**little, "margin": ON, "all": ON}, little).answer == "unknown"
    assert compare({**USED, "margin": ON, "all": ON}, little).answer == "yes"


@pytest.mark.parametrize("error", [0.002, None])
def test_items_that_leave_it_open_are_said(error: float | None) -> None:
    found = compare({**USED, "margin": OFF, "all": OFF}, error=error)
    assert found.answer == "unknown"
    if error is not None:
        assert "178" in found.reason  # 100 * (2 * 0.002 / 0.003)^2


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_changes_are_on_the_scale_of_the_measure_and_for_the_worse(better: str) -> None:
    sign = 1 if better == "lower" else -1
    by = GridMeasure("mse", {}, "log", better, 0.05, 0.05)  # type: ignore[arg-type]
    tenth, band = 0.1 * math.log(1.05), math.log(1.05)

    def word(size: float) -> str:
        change = OWN * math.expm1(sign * size)
        return compare({**USED, "margin": (change,) * 3, "all": (change,) * 3}, by=by).word

    assert [word(size) for size in (0.99 * tenth, 1.01 * tenth, 1.01 * band, -1.01 * band)] == [
        "off", "faint", "on", "on, and it hurts"
    ]  # fmt: skip


def test_operators_in_other_layers_differ_in_all_that_either_changes() -> None:
    top = Operators({**NONE, "margin": margin()}, NONE, {"share": 0.5, "side": "top"})
    bottom = Operators({**NONE, "margin": margin()}, NONE, {"share": 0.5, "side": "bottom"})
    assert differing(top, bottom) == {"margin"}
    assert differing(top, top) == set()


def fields(**values: object) -> Operators:
    """The fields of an experiment that has no operator."""
    return Operators({"gate": False, "lr": 0.1, **values}, {}, {}, {})


GATE, BARE = fields(gate=True), fields()


@pytest.mark.parametrize(
    ("ours", "theirs", "operators", "word"),
    [
        ({"gate": ON}, None, (GATE, BARE), "on"),
        (None, {"gate": ON}, (BARE, GATE), "on"),
        ({"gate": OFF}, {"gate": OFF}, (GATE, BARE), "off"),
        ({"gate": OFF}, None, (GATE, fields(lr=0.2)), "off, beside other changes"),
        ({"gate": ON}, None, (GATE, fields(lr=0.2)), "on"),
        ({"gate": ON}, None, (fields(gate="big"), fields(gate="small")), None),  # the baseline has a gate, too
        ({"gate": OFF}, {"gate": ON}, (fields(gate="big"), fields(gate="small")), "on"),
        ({"lr": ON}, {"lr": ON}, (GATE, BARE), None),
        (None, None, (GATE, BARE), None),
        ({"gate+lr": ON}, {"gate+lr": ON}, (GATE, BARE), None),  # both have lr
        ({"m.gate": ON}, None, (fields(m={"gate": 2, "heads": 4}), fields(m={"gate": 0, "heads": 4})), "on"),
        ({"gate": ON}, None, (fields(gate={"kind": "sigmoid", "init": 1}), fields(gate={"kind": "none"})), "on"),
        ({"gate": ON, "m": ON, "gate+m": OFF}, None, (fields(gate=True, m=1), fields(m=0)), "off"),
        ({"gate": ON, "m": ON}, None, (fields(gate=True, m=1), fields(m=0)), None),  # not measured without both
    ],
)
def test_fields_of_an_experiment(
    ours: Mapping[str, tuple[float, ...]] | None,
    theirs: Mapping[str, tuple[float, ...]] | None,
    operators: tuple[Operators, Operators],
    word: str | None,
) -> None:
    found = compare(ours, theirs, operators=operators)
    assert (found.word, found.answer == "unknown") == (word or "", word is None)


def test_fields_and_operators_are_not_compared() -> None:
    assert compare({**USED, "margin": ON}, operators=(MARGIN, GATE)).answer == "unknown"
    assert compare({}, {}, operators=(GATE, GATE)).answer == "-"
