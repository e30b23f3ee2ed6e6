"""The difference of two specs in words."""

from standin import PRINCIPLED, SSA, SSA_OPERATOR, AdamW, Execution, Number, Operator, Placement, Training, Trial

from grid import diff


def describe(a: Trial, b: Trial) -> list[str]:
    return [str(difference) for difference in diff(a, b)]


def test_a_difference_is_a_path_and_what_was_and_is() -> None:
    a = Trial(operator=PRINCIPLED)
    gate = a.operator.gate.changed(strength=Number(init=0.5, per=("layer",)))
    b = a.changed(
        operator=a.operator.changed(gate=gate), seed=3, training=Training(optimizer=AdamW(lr=2e-3), clip=None)
    )
    assert describe(a, b) == [
        "operator.gate.strength.per: () -> ('layer')",
        "training.optimizer.lr: 0.001 -> 0.002",
        "training.clip: 1.0 -> none",
        "seed: 0 -> 3",
    ]


def test_another_kind_and_what_appears_are_told_whole() -> None:
    assert diff(Trial(), Trial()) == ()
    assert describe(Trial(), Trial(operator=Operator(score=SSA(n=Number(init=2.0))))) == [
        "operator.score: exponential -> ssa(n=Number(init=2.0))"
    ]
    assert describe(Trial(), Trial(placement=Placement(other=SSA_OPERATOR))) == [
        "placement.other: none -> Operator(name='SSA', score=ssa)"
    ]


def test_differences_outside_the_key_say_so() -> None:
    a, b = Trial(), Trial(operator=Operator(name="x"), execution=Execution(threads=2))
    assert describe(a, b) == [
        "operator.name: '' -> 'x'  (outside the key)",
        "execution.threads: 1 -> 2  (outside the key)",
    ]
    assert a.key == b.key
    assert not any(difference.identity for difference in diff(a, b))
