"""The law of decoding: tokens one after another, with kept keys and values, are what the whole sequence gives."""

import torch

from ablate.variants.laws.inputs import LENGTH, attentions, model_of, predict_numbers, sequences
from ablate.variants.laws.law import Law, NothingStated, near
from ablate.variants.model.cache import NoCache
from ablate.variants.operator import Operator


@torch.no_grad()
def _decoding(operator: Operator) -> None:
    """Check with numbers predicted from the query, then from the token, in steps of several tokens and of one."""
    for axis in ("query", "token"):
        model, made = model_of(predict_numbers(operator, axis)).eval(), torch.Generator().manual_seed(8)
        for attention in attentions(model):
            attention.qkv.weight *= 30
            for each in attention.numbers.projection.values():
                each.copy_(torch.randn(each.shape, generator=made, dtype=torch.float64))
        x, first = sequences(), max(1, operator.visible.ahead + 1)
        if first >= LENGTH:
            raise NothingStated
        try:
            cache = model.start_cache(first)
        except NoCache as error:
            raise NothingStated from error
        steps = [first, *([2] if first + 2 < LENGTH else [])]
        steps += [1] * (LENGTH - sum(steps))
        came = torch.cat([model(part, None, cache) for part in torch.split(x, steps, 1)], 1)
        near(
            came,
            model(x),
            f"in steps of {', '.join(map(str, steps))} tokens, numbers per {axis}",
            rtol=1e-9,
            atol=1e-11,
        )


LAWS = (Law("decoding", "With keys and values kept, tokens one by one give what the whole sequence does.", _decoding),)
