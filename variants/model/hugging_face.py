"""Operators in models of the package transformers: GPT-2, Llama, Qwen2 and GPT-NeoX."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import nn

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.variants.model.attention import AttentionOp
from ablate.variants.operator import Operator
from ablate.variants.stages.positions import NoPositions, Rotary

Model = TypeVar("Model", bound=nn.Module)


def install(model: Model, operator: Operator | Sequence[Operator]) -> Model:
    """Compute the attention of a GPT-2, Llama, Qwen2 or GPT-NeoX model by an operator, or by one per layer.

    Weights keep their names and values; those of the operator's numbers are `....operator.numbers...` beside them.
    `generate`, grouped heads and padding work as before. SpecError if the model is another, or an operator cannot.
    """
    try:
        adapters = import_module("ablate.variants.model.hugging_face_layers").ADAPTERS
    except ImportError as error:
        raise EnvironmentProblem(
            "install puts operators into models of the package transformers, which is missing; "
            "pip install 'ablate[transformers]'"
        ) from error
    ours = {**adapters, **{each: each for each in adapters.values()}}
    hosts: list[Any] = [
        each for each in model.modules() if type(each) in ours and not getattr(each, "is_cross_attention", False)
    ]
    if not hosts:
        raise SpecError(
            f"install knows GPT-2, Llama, Qwen2 and GPT-NeoX; {type(model).__name__} has none of their layers"
        )
    operators = [operator] * len(hosts) if isinstance(operator, Operator) else list(operator)
    if len(operators) != len(hosts):
        raise SpecError(f"one operator per layer: the model has {len(hosts)}, got {len(operators)}")
    shared = dict[str, nn.Parameter]()
    ops = [
        _op(host, each, (layer, len(hosts)), shared)
        for layer, (host, each) in enumerate(zip(hosts, operators, strict=True))
    ]
    for host, op in zip(hosts, ops, strict=True):
        host.__class__ = ours[type(host)]
        host.operator = op.train(host.training)
    config: Any = model.config
    config._attn_implementation = "sdpa"  # its masks are boolean
    return model


def refuse(operator: Operator, *, rotary: bool) -> str | None:
    """Return why a host whose own code rotates, or not, cannot compute `operator`; None if it can."""
    signals = operator.signals
    if rotary and operator.gate.takes_channels:
        return "its gate takes channels that the model rotates; use dims='add'"
    apart = signals.rotary == "per_signal" and operator.merge.heads_joined != signals.count
    if rotary and signals.count > 1 and apart:
        return "its signals rotate by frequencies that the model has not; use signals.rotary='before_split'"
    return None


def _op(host: Any, operator: Operator, depth: tuple[int, int], shared: dict[str, nn.Parameter]) -> AttentionOp:
    config, rotary = host.config, hasattr(host.config, "rope_parameters")
    heads, width = config.num_attention_heads, config.hidden_size
    head_width = getattr(config, "head_dim", None) or width // heads
    if (reason := refuse(operator, rotary=rotary)) is not None:
        raise SpecError(f"{operator.label!r} cannot be installed in {type(host).__name__}: {reason}")
    if abs(host.scaling * head_width**0.5 - 1) > 1e-6:
        raise SpecError(f"operators scale logits by 1 / sqrt({head_width}); this model scales by {host.scaling:g}")
    dropout = config.attn_pdrop if hasattr(config, "attn_pdrop") else config.attention_dropout
    op = AttentionOp(
        operator,
        heads=heads,
        head_width=head_width,
        width=width,
        kv_heads=getattr(config, "num_key_value_heads", None),
        layer=depth[0],
        layers=depth[1],
        positions=Rotary() if rotary else NoPositions(),
        dropout=dropout,
        shared=shared,
    )
    weight: torch.Tensor = next(host.parameters())
    op.to(weight.device)
    if op.gate is not None:
        op.gate.to(weight.dtype)
    return op
