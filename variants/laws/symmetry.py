"""Laws of symmetry: sequences and heads are interchangeable, and a spec survives JSON."""

import torch

from ablate.variants.attend import Heads
from ablate.variants.laws.inputs import fit, random_inputs
from ablate.variants.laws.law import Law, equal, near, require
from ablate.variants.laws.visibility import output
from ablate.variants.operator import Operator, causal


def _sequences(operator: Operator) -> None:
    inputs = random_inputs(operator, batch=3)
    turned = [2, 0, 1]
    came = output(operator, inputs.batch(chosen=turned))
    equal(came, output(operator, inputs)[turned], "three sequences in another order")


def _heads(operator: Operator) -> None:
    count = fit(operator).heads
    inputs = random_inputs(operator)
    turned = [*range(1, count), 0]
    came = output(operator, inputs.heads(chosen=turned))
    equal(came, output(operator, inputs)[:, turned], f"{count} heads, the first put last")


def _json(operator: Operator) -> None:
    again = Operator.model_validate_json(operator.model_dump_json())
    require(again == operator, f"expected {operator!r}, came {again!r}, for its JSON read back")
    require(again.key == operator.key, f"expected key {operator.key}, came {again.key}, for its JSON read back")


def _definition(operator: Operator) -> None:
    """Check the weights that `attend` returns: their shape, and 0 for hidden keys."""
    inputs = random_inputs(operator)
    result = inputs.attend(operator)
    seen = operator.visible.restrict(causal(13, 13), Heads(inputs.q, inputs.k, inputs.v).distance)
    hidden = result.weights.masked_select(~seen)
    require(result.weights.shape[-2:] == (13, 13), f"expected weights [..., 13, 13], came {[*result.weights.shape]}")
    near(hidden, torch.zeros_like(hidden), "the weights of keys that may not be seen")
    require(
        (result.ground is not None) == operator.normaliser.has_ground,
        f"normaliser {operator.normaliser.label!r} says has_ground={operator.normaliser.has_ground}, and "
        f"{'leaves' if result.ground is not None else 'leaves no'} weight to a ground state",
    )


LAWS = (
    Law("sequences", "Sequences of a batch know nothing of each other.", _sequences),
    Law("heads", "Heads are interchangeable, each with its numbers.", _heads),
    Law("json", "It survives JSON with its key.", _json),
    Law("weights", "Weights of hidden keys are 0; a ground state has weight if it is declared.", _definition),
)
