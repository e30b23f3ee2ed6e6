"""A spec is frozen, closed, and known by its content; canonical JSON and keys."""

import copy
import json
import math
import pickle
from pathlib import Path
from typing import Annotated, Any, Self

import pytest
from hypothesis import given, strategies as st
from pydantic import Field, ValidationError, model_validator
from standin import (
    PRINCIPLED,
    SSA,
    SSA_OPERATOR,
    LinearFunctions,
    Model,
    Number,
    Operator,
    Placement,
    Task,
    Training,
    Trial,
)

from ablate.grid import FROZEN, FrozenDict, Label, OutsideKey, Spec, SpecError, canonical_json, cell_key, content_key
from ablate.grid.spec import Added
from ablate.grid.suggestions import suggest_name

GOLDEN = Path(__file__).parents[1] / "golden" / "keys.json"


class Point(Spec):
    x: float = 0.0
    count: int = 1
    text: str = ""
    flag: bool = False
    pair: tuple[float, float] = (0.0, 1.0)
    maybe: float | None = None
    at: Annotated[dict[str, float], FROZEN] = FrozenDict()
    name: Label = ""
    workers: Annotated[int, OutsideKey()] = 1


FINITE = st.floats(allow_nan=False, allow_infinity=False)
POINTS = st.builds(
    Point,
    x=FINITE,
    count=st.integers(-(2**40), 2**40),
    text=st.text(st.characters(exclude_categories=["Cs"])),
    flag=st.booleans(),
    pair=st.tuples(FINITE, FINITE),
    maybe=st.none() | FINITE,
    at=st.dictionaries(st.text("abc"), FINITE, max_size=3),
)


@given(POINTS)
def test_a_spec_survives_json_with_its_key(point: Point) -> None:
    back = Point.model_validate(json.loads(json.dumps(point.data())))
    assert back == point
    assert back.key == point.key
    assert Point.model_validate_json(point.model_dump_json()).key == point.key


@given(POINTS, POINTS)
def test_specs_have_one_key_exactly_when_their_fields_are_equal(a: Point, b: Point) -> None:
    assert (a.key == b.key) == (a == b)


def test_a_key_depends_on_values_and_defaults_and_not_on_spelling_or_order() -> None:
    class One(Spec):
        a: int = 1
        b: str = "x"

    class Other(Spec):
        b: str = "x"
        a: int = 1

    class Short(Spec):
        a: int = 1

    assert One().key == Other().key != Short().key
    assert Point(x=1, at={"sigma": 1}).key == Point(x=1.0, at={"sigma": 1.0}).key
    assert Point(x=-0.0, pair=(-0.0, 1.0)).key == Point().key
    assert Point(text="γ 王 🜨").key != Point(text="γ 王").key
    assert "γ" in Point(text="γ").canonical
    assert Trial(operator=Operator(name="a")).key == Trial(operator=Operator(name="b")).key
    assert (SSA().label, Point().label, SSA_OPERATOR.label) == ("ssa", "Point", "SSA")
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValidationError, match="finite"):
            Point(x=value)


def test_labels_and_what_is_outside_the_key_do_not_change_it() -> None:
    named = Point(name="best", workers=8)
    assert named.key == Point().key
    assert named != Point()
    assert {named, Point(name="best", workers=8)} == {named}


def test_an_added_field_changes_a_key_unless_it_has_its_default() -> None:
    class Before(Spec):
        x: float = 1.0

    class After(Before):
        shift: Annotated[float, Added()] = 0.5
        made: Annotated[tuple[int, ...], Added()] = Field(default_factory=lambda: (1, 2))

    assert After().key == After(shift=0.5, made=(1, 2)).key == Before().key
    keys = {Before().key, After(shift=0.0).key, After(made=()).key, After(shift=0.0, made=()).key}
    assert len(keys) == 4


def test_a_spec_cannot_be_changed_in_place() -> None:
    point = Point(at={"a": 1})
    with pytest.raises(ValidationError, match="frozen"):
        point.x = 2  # type: ignore[misc]
    for change in (
        lambda: point.at.update(a=2),
        lambda: point.at.pop("a"),
        lambda: point.at.__setitem__("a", 2),
        lambda: point.at.__ior__({"a": 2}),
        lambda: point.at.clear(),
    ):
        with pytest.raises(TypeError, match="changed"):
            change()


def test_a_copy_is_validated() -> None:
    with pytest.raises(SpecError, match=r"x should be a valid number.*got 'far'"):
        Point().changed(x="far")
    with pytest.raises(SpecError, match="'y' is not a field of Point"):
        Point().model_copy(update={"y": 1})


class Share(Spec):
    share: float
    of: int

    @model_validator(mode="after")
    def _whole_parts(self) -> Self:
        self.set_normal_form(share=round(self.share * self.of) / self.of)
        return self


def test_what_a_field_came_to_is_its_value_and_what_was_written_is_where_changes_begin() -> None:
    of_three = Share(share=0.5, of=3)
    assert of_three.share == 2 / 3
    assert of_three.as_given("share") == 0.5
    assert of_three.changed(of=12) == Share(share=0.5, of=12) != Share(share=2 / 3, of=12)
    assert of_three.changed(share=0.1).as_given("share") == 0.1


def test_what_was_written_is_no_part_of_a_specs_identity() -> None:
    written, exact = Share(share=0.5, of=3), Share(share=2 / 3, of=3)
    assert written == exact
    assert (written.key, hash(written), written.data()) == (exact.key, hash(exact), exact.data())
    assert repr(written) == repr(exact)
    assert Share.model_validate(written.data()) == written
    assert pickle.loads(pickle.dumps(written)).changed(of=12).share == 0.5


def test_a_spec_survives_pickle_and_deepcopy() -> None:
    point = Point(at={"a": 1.0})
    for again in (pickle.loads(pickle.dumps(point)), copy.deepcopy(point)):
        assert again == point
        assert again.key == point.key
        assert isinstance(again.at, FrozenDict)


def test_an_unknown_field_is_told_with_the_nearest() -> None:
    with pytest.raises(ValidationError, match=r"'cuont' is not a field of Point; it has .*did you mean 'count'"):
        Point(cuont=2)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("epsilon", ["eps", "of", "positions"], "eps"),
        ("sinks", ["sink_tokens", "kings"], "sink_tokens"),
        ("mes", ["loss", "mse"], "mse"),
        ("recall", ["needle", "associative_recall"], "associative_recall"),
        ("n", ["steps", "batch"], None),
        ("", ["k"], None),
        ("k", [], None),
    ],
)
def test_the_nearest_begins_alike_and_nothing_is_named_that_is_far(
    name: str, known: list[str], near: str | None
) -> None:
    assert suggest_name(name, known) == (f"; did you mean {near!r}?" if near else "")


@pytest.mark.parametrize("kind", [list[int], set[int], dict[str, int], tuple[list[int], ...], list[int] | None])
def test_a_field_that_can_be_changed_in_place_is_refused_when_the_class_is_made(kind: Any) -> None:
    with pytest.raises(SpecError, match=r"Loose\.a is a (list|set|dict)"):
        type("Loose", (Spec,), {"__annotations__": {"a": kind}, "__module__": __name__})


def test_outside_key_inside_a_type_is_refused_instead_of_ignored() -> None:
    with pytest.raises(SpecError, match="OutsideKey inside its type"):

        class Hidden(Spec):
            a: Annotated[int, OutsideKey()] | None = None


@pytest.mark.parametrize("name", ["default", "type", "many", "named"])
def test_text_is_no_number_in_any_field(name: str) -> None:
    class Odd(Spec):
        default: int = 1
        type: float = 1.0
        many: tuple[int | None, ...] = ()
        named: Annotated[dict[str, float], FROZEN] = FrozenDict()

    good, wrong = {"many": ((1e3,), ("1",)), "named": ({"a": 1}, {"a": "1"})}.get(name, (1e3, "1"))
    assert getattr(Odd(**{name: good}), name)
    with pytest.raises(ValidationError):
        Odd(**{name: wrong})


def test_a_concrete_spec_field_holds_no_subclass_because_its_fields_would_be_dropped() -> None:
    class Wider(Number):
        extra: float = 1.0

    with pytest.raises(ValidationError, match=r"Wider .* make Number a Choice family"):
        SSA(n=Wider(init=1.0))


def test_a_cell_key_is_the_key_without_the_seed() -> None:
    class Seedless(Spec):
        x: float = 0.0

    class Seeded(Seedless):
        seed: int = 0

    assert cell_key(Seeded(x=2, seed=1)) == cell_key(Seeded(x=2, seed=7)) == Seedless(x=2).key
    assert Seeded(x=2, seed=1).key != Seeded(x=2, seed=7).key
    assert cell_key(Seeded(x=3)) != cell_key(Seeded(x=2))


class Whole(Spec):
    """A spec of many specs; its fields in the key are those of a trial."""

    task: Task = LinearFunctions()
    model: Model = Model()
    operator: Operator = PRINCIPLED
    placement: Placement = Placement()
    training: Training = Training()
    seed: int = 0


GOLDEN_SPECS = {
    "grid/point": Point(
        x=-1.5e-7, count=2, text="γ", flag=True, maybe=1.0, at={"b": 1, "a": 1e22}, name="no part of it"
    ),
    "grid/number": Number(init=0.5, per=("layer", "head")),
    "grid/score": SSA(),
    "grid/trial": Whole(seed=4),
}


@pytest.mark.parametrize("name", GOLDEN_SPECS)
def test_keys_are_for_ever(name: str) -> None:
    assert GOLDEN_SPECS[name].key == json.loads(GOLDEN.read_text())[name]


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_canonical_json_reads_back_as_what_was_written(data: Any) -> None:
    assert json.loads(canonical_json(data)) == data


def test_numbers_have_one_form_and_a_key_has_128_bits() -> None:
    assert canonical_json(-0.0) == canonical_json(0.0) == "0.0"
    assert canonical_json(True) != canonical_json(1)
    assert len(content_key("{}")) == len(f"{int(content_key('{}'), 16):032x}") == 32


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"a": [math.nan]}, "finite"),
        ({"a": [-math.inf]}, "finite"),
        (test_numbers_have_one_form_and_a_key_has_128_bits, r"function test_numbers.*; write test_numbers.*\(\)"),
        ({"a": object()}, "of class object.* write it"),
        ({1: "a"}, "1 names an entry"),
        ("\ud800", "half a character"),
    ],
)
def test_what_has_no_canonical_form_is_refused(data: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        content_key(canonical_json(data))
