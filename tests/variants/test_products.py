"""Products that are not the dot product: features, their recurrences, and cosFormer's horizon."""

import pytest
import torch

from variants.operator import distances
from variants.stages.products.cosformer import CosFormer

T, D = 13, 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_its_horizon_a_cosformer_logit_is_not_negative(dtype: torch.dtype) -> None:
    x = torch.ones(1, 1, 8, D, dtype=dtype)
    assert (CosFormer(length=7).logits(x, x, distances(8, 8)) >= 0).all()
