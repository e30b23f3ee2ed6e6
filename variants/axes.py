"""Names of axes in annotations: `Float[Tensor, "batch heads queries keys"]`. One name is one size within a call.

    batch      sequences of a batch                 tokens    positions of a sequence
    signals    maps that a merge makes one          width     channels of a layer's input
    heads      heads as the operator counts them    outputs   channels of a model's predictions
    queries    tokens that look                     rows, columns   entries of a number
    keys       tokens that are seen                 maps      all axes before queries and keys
    channels   of a query or a key                  values    channels of a value

`*maps` are several axes or none, mostly [batch, heads], and [signals, batch, heads] before signals merge. `#heads` is 1
or the number of heads, `...` is anything.
"""

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

Queries = Float[Tensor, "*maps queries channels"]
Keys = Float[Tensor, "*maps keys channels"]
HeadValues = Float[Tensor, "*maps keys values"]
HeadOutput = Float[Tensor, "*maps queries values"]
Map = Float[Tensor, "*maps queries keys"]
"""Logits, scores or weights of every query and key."""
Mask = Bool[Tensor, "*#maps queries keys"]
"""True = the query sees the key; may have 1 for an axis of the maps, or lack it."""
Distances = Int[Tensor, "queries keys"]
"""i - j of every query and key."""
Scalar = Float[Tensor, "#batch #heads #queries 1"]
"""The value of a scalar number."""
Hidden = Float[Tensor, "batch tokens width"]
"""The input or output of a layer."""
Ids = Int[Tensor, "batch tokens"]
"""Token ids."""
Inputs = Shaped[Tensor, "batch tokens *vector"]
"""Vectors or token ids that a model reads."""
Outputs = Float[Tensor, "batch tokens outputs"]
"""Predictions of a model."""
Visibility = Bool[Tensor, "*#batch #tokens #tokens"]
"""True = the query may see the key, if the model allows it."""
