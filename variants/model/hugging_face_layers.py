"""Attention of Hugging Face's models by an operator: their own projections and rotation, and `AttentionOp` between.

Each class takes the place of the class that it derives from, so that the names of weights stay. Only the forward pass
is ours: the interface for attention functions passes neither the layer's input nor queries before rotation.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import LlamaAttention
from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention

from ablate.grid.errors import SpecError
from ablate.variants.axes import HeadValues, Hidden, Keys
from ablate.variants.model.attention import AttentionOp
from ablate.variants.model.cache import Cache


@final
class HostCache(Cache):
    """The layer of a model's own cache. Numbers by key are kept as further channels of the keys."""

    def __init__(self, cache: Any, layer: int, heads: int, keys: int | None) -> None:
        """`keys` is how many the mask is made for, None without one; a cache of a sliding window has no more."""
        self._cache, self._layer, self._heads = cache, layer, heads
        self._keys = keys if any(getattr(cache, "is_sliding", ())) else None
        if getattr(cache, "is_compileable", False):
            raise SpecError("a cache of fixed size has places that no token takes yet; use one that grows")

    @property
    def length(self) -> int:
        return int(self._cache.get_seq_length(self._layer))

    def count_keys(self, new: int) -> int:
        return self.length + new if self._keys is None else self._keys

    def attempt(self) -> AbstractContextManager[object]:
        """Put nothing back: a model extends its cache layer by layer."""
        return nullcontext()

    def extend(
        self,
        k: Float[Tensor, "batch heads tokens channels"],
        v: Float[Tensor, "batch heads tokens values"],
        by_key: Mapping[str, Tensor],
    ) -> tuple[Keys, HeadValues, Mapping[str, Tensor]]:
        batch, kv_heads, new, channels = k.shape
        group = self._heads // kv_heads
        packed = [
            each.expand(batch, self._heads, new, 1).reshape(batch, kv_heads, group, new).transpose(2, 3)
            for each in by_key.values()
        ]
        keys, values = self._cache.update(torch.cat((k, *packed), -1), v, self._layer)
        all_by_key = {
            name: keys[..., start : start + group].transpose(2, 3).reshape(batch, self._heads, -1, 1)
            for name, start in zip(by_key, range(channels, keys.shape[-1], group), strict=True)
        }
        return keys[..., :channels].to(k.dtype), values, all_by_key

    def swap(
        self, name: str, last: Float[Tensor, "batch heads 1 channels"]
    ) -> Float[Tensor, "batch heads 1 channels"] | None:
        raise NotImplementedError("a host's layers shift no tokens")


_HIDDEN = -1e4
"""Models add less than this to the logits of hidden keys."""


def _visible(mask: Any) -> Tensor | None:
    """Return the mask as booleans, True where a query may look."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dim() != 4:
        raise SpecError("the mask is that of a fused kernel; set_attn_implementation('sdpa') gives one for operators")
    if mask.dtype != torch.bool and bool(((mask != 0) & (mask > _HIDDEN)).any()):
        raise SpecError("attention_mask adds numbers to the logits, which operators do not take; use 0 and -inf alone")
    return mask if mask.dtype == torch.bool else mask >= 0


def _attend(
    layer: Any,
    heads: tuple[Tensor, Tensor, Tensor],
    x: Hidden,
    call: Mapping[str, Any],
    rotate: Callable[[Tensor], Tensor] | None = None,
) -> Float[Tensor, "batch tokens heads_times_channels"]:
    """Return the heads' outputs side by side [B, T, H D]; `call` has the mask and the cache under their names."""
    op: AttentionOp = layer.operator
    cache = next(
        (call[name] for name in ("cache", "past_key_values", "layer_past") if call.get(name) is not None), None
    )
    mask, kept = _visible(call["attention_mask"]), None
    if cache is not None:
        own = getattr(cache, "self_attention_cache", cache)  # beside that of an encoder
        kept = HostCache(own, layer.layer_idx, op.heads, None if mask is None else mask.shape[-1])
    output: Tensor = op(*heads, x, mask, cache=kept, rotate=rotate)
    return output.transpose(1, 2).flatten(2)


class GPT2(GPT2Attention):
    """GPT-2's attention, without rotation."""

    def forward(self, hidden_states: Hidden, cache: Any = None, attention_mask: Any = None, **call: Any) -> Any:
        qkv = self.c_attn(hidden_states).split(self.split_size, dim=2)
        heads = tuple(each.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for each in qkv)
        output = _attend(self, heads, hidden_states, {**call, "cache": cache, "attention_mask": attention_mask})
        return self.resid_dropout(self.c_proj(output)), None


def _forward_with_rotation(
    self: Any, hidden_states: Hidden, position_embeddings: Any = None, attention_mask: Any = None, **call: Any
) -> Any:
    projected = (each(hidden_states) for each in (self.q_proj, self.k_proj, self.v_proj))
    heads = tuple(each.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for each in projected)
    rotate = partial(_rotate, modeling_llama, position_embeddings)
    output = _attend(self, heads, hidden_states, {**call, "attention_mask": attention_mask}, rotate)
    return self.o_proj(output), None


class Llama(LlamaAttention):
    """Llama's attention."""

    forward = _forward_with_rotation


class Qwen2(Qwen2Attention):
    """Qwen2's attention."""

    forward = _forward_with_rotation


class GPTNeoX(GPTNeoXAttention):
    """GPT-NeoX's attention, of which some channels turn."""

    def forward(
        self,
        hidden_states: Hidden,
        attention_mask: Any = None,
        layer_past: Any = None,
        position_embeddings: Any = None,
        **call: Any,
    ) -> Any:
        qkv = self.query_key_value(hidden_states).unflatten(-1, (-1, 3 * self.head_size)).transpose(1, 2)
        rotate = partial(_rotate, modeling_gpt_neox, position_embeddings)
        call |= {"attention_mask": attention_mask, "layer_past": layer_past}
        return self.dense(_attend(self, qkv.chunk(3, dim=-1), hidden_states, call, rotate)), None


def _rotate(
    module: Any, waves: tuple[Tensor, Tensor], x: Float[Tensor, "batch heads tokens channels"]
) -> Float[Tensor, "batch heads tokens channels"]:
    return module.apply_rotary_pos_emb(x, x, *waves)[0]  # type: ignore[no-any-return]


ADAPTERS: Mapping[type, type] = {
    GPT2Attention: GPT2,
    LlamaAttention: Llama,
    Qwen2Attention: Qwen2,
    GPTNeoXAttention: GPTNeoX,
}
"""Ours by the class of the host."""
