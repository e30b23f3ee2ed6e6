"""Faults that a formula may have, planted one by one: the battery finds each, by the law that `faults.toml` says."""

import tomllib
from pathlib import Path

import pytest
from faults import Fault, changed, found, planted

from variants.laws.battery import LAWS, find
from variants.laws.examples import examples
from variants.operator import Operator

TABLE = tomllib.loads(Path(__file__).with_name("faults.toml").read_text(encoding="utf-8"))
FAULTS = [Fault(words, where, *rest) for where, faults in TABLE.items() for words, rest in faults.items()]
BY_LABEL = {operator.label.removesuffix(f" {operator.signals.label}"): operator for operator in examples()}
BY_NAME = {law.name: law for law in LAWS}
RAISE = {"a row that sees nothing is projected"}
"""Faults that the library itself answers with an error: any other error is a fault badly planted."""


def example_of(fault: Fault) -> Operator:
    """The example it is tried on."""
    assert fault.operator in BY_LABEL, f"there is no example {fault.operator!r}"
    return BY_LABEL[fault.operator]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.words.replace(" ", "-") for fault in FAULTS])
def test_a_fault_is_found_by_its_law(fault: Fault) -> None:
    operator, law = example_of(fault), BY_NAME[fault.law]
    assert find(operator, law).proved, "the law is broken without the fault"
    with planted(fault):
        finding = find(operator, law)
    assert not finding.proved, f"{law.name!r} does not find it; these do: {also(fault)}"
    assert not finding.raised or fault.words in RAISE, f"a crash proves nothing: {finding.words}"
    assert find(operator, law).proved, "the fault was not taken out again"


def also(fault: Fault) -> list[str]:
    """All laws that find it on its operator."""
    with planted(fault):
        return [law.name for law in LAWS if not find(example_of(fault), law).proved]


def test_every_law_finds_a_fault_that_is_planted() -> None:
    assert {fault.law for fault in FAULTS} == set(BY_NAME)


def test_there_are_faults_in_every_stage() -> None:
    folders = {fault.where.split(".")[2] for fault in FAULTS if fault.where.startswith("variants.stages.")}
    stages = {"visible", "preparations", "extras", "products", "transforms", "forgetting", "margins", "gates", "scores"}
    stages |= {"normalisers", "merges", "rescales", "readouts", "head_norms", "output_gates"}
    assert stages <= folders
    assert len(FAULTS) >= 45


def test_a_fault_whose_source_is_gone_is_mended_and_not_passed_over() -> None:
    fault = FAULTS[0]
    with pytest.raises(AssertionError, match="has 0 times 'no such text'; mend the fault"):
        changed(found(fault.where), "no such text", "")
