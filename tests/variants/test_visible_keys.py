"""Hidden keys have no effect on visible ones: padding, borders of documents, and watching a model at work."""

import pytest
import torch
from torch import Tensor

from variants import Tokens, Transformer, gpt2, integral, principled, softmax, ssa
from variants.operator import Operator

OPERATORS = [softmax(), ssa(), integral(2), principled("query", gate_width=2)]


def model_of(operator: Operator, **changes: object) -> Transformer:
    backbone = gpt2(layers=2, heads=2, width=16, max_positions=32).changed(**changes)
    return Transformer(backbone, [operator] * 2, inputs=Tokens(11), seed=3).double().eval()


def ids(*shape: int) -> Tensor:
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.label)
@pytest.mark.parametrize("path", ["causal", "encoder"])
def test_padding_at_the_end_changes_no_prediction_before_it(operator: Operator, path: str) -> None:
    model = model_of(operator, causal=path == "causal")
    whole, lengths = ids(3, 9), torch.tensor([9, 5, 2])
    visible = (torch.arange(9) < lengths[:, None])[:, None, :]
    padded = model(whole, visible)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(padded[row, :length], model(whole[row : row + 1, :length])[0])


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.label)
def test_watching_changes_nothing_and_shows_what_attention_did(operator: Operator) -> None:
    model = model_of(operator)
    whole = ids(2, 7)
    visible = (torch.arange(7) < torch.tensor([[7], [4]]))[:, None, :]
    before = model(whole, visible)
    layers = list(model.trace_layers(whole, visible))
    torch.testing.assert_close(model(whole, visible), before)
    assert [each.layer for each in layers] == [0, 1]
    torch.testing.assert_close(layers[0].entering, model.embed(whole))
    torch.testing.assert_close(layers[0].leaving, layers[1].entering)
    torch.testing.assert_close(model.read_out(model.norm(layers[1].leaving)), before)
    for each in layers:
        weights = each.worked.attended.weights
        assert weights.shape == (2, 2, 7, 7)
        assert weights[..., torch.ones(7, 7).triu(1).bool()].abs().max() == 0
        assert weights[1, :, :, 4:].abs().max() == 0
        assert each.worked.attended.logits.shape[-4:] == (2, 2, 7, 7)
        assert each.operator is operator
    assert all(block.attention.watched is None for block in model.blocks())
