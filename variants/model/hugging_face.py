"""Operators in models of the package transformers: GPT-2, Llama, Qwen2 and GPT-NeoX."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
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
    `generate`, grouped heads and padding work as before. Numbers that `save_pretrained` wrote are read again from the
    folder that the model comes from. SpecError if the model is another, if an operator cannot, or if the folder has
    numbers of another operator.
    """
    try:
        adapters = import_module("ablate.variants.model.hugging_face_layers").ADAPTERS
    except ImportError as error:
        raise EnvironmentProblem(
            "the package transformers is missing, into whose models install puts operators; pip install "
            "'ablate[transformers]'"
        ) from error
    ours = {**adapters, **{each: each for each in adapters.values()}}
    hosts: dict[str, Any] = {
        name: each
        for name, each in model.named_modules()
        if type(each) in ours and not getattr(each, "is_cross_attention", False)
    }
    if not hosts:
        raise SpecError(
            f"{type(model).__name__} has no layers that install knows: of GPT-2, Llama, Qwen2 and GPT-NeoX; give one "
            "of these"
        )
    operators = [operator] * len(hosts) if isinstance(operator, Operator) else list(operator)
    if len(operators) != len(hosts):
        raise SpecError(
            f"{len(operators)} operators do not fit the {len(hosts)} layers of the model; give one per layer"
        )
    shared = dict[str, nn.Parameter]()
    ops = [
        _op(host, each, (layer, len(hosts)), shared)
        for layer, (host, each) in enumerate(zip(hosts.values(), operators, strict=True))
    ]
    if all(type(each) in adapters for each in hosts.values()):
        state = {
            f"{name}.operator.{key}": each
            for name, op in zip(hosts, ops, strict=True)
            for key, each in op.state_dict().items()
        }
        _load_saved(model.config, state)
    for host, op in zip(hosts.values(), ops, strict=True):
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


def _load_saved(config: Any, state: dict[str, torch.Tensor]) -> None:
    """Copy into `state` what `save_pretrained` wrote of operators; `from_pretrained` leaves it out."""
    folder, saved = config.name_or_path, dict[str, torch.Tensor]()
    for file in Path(folder).glob("*.safetensors") if folder else ():
        with import_module("safetensors").safe_open(file, "pt") as opened:
            saved |= {name: opened.get_tensor(name) for name in opened.keys() if ".operator." in name}  # noqa: SIM118
    own = {state[name].data_ptr(): name for name in reversed(state)}  # layers may share a number
    shapes = {name: each.shape for name, each in saved.items()}
    if saved and shapes != {name: state[name].shape for name in own.values()}:
        raise SpecError(
            f"{folder} was saved with another operator; install that one first, which reads its numbers, then this"
        )
    for name, each in saved.items():
        state[name].copy_(each)


def _op(host: Any, operator: Operator, depth: tuple[int, int], shared: dict[str, nn.Parameter]) -> AttentionOp:
    config, rotary = host.config, hasattr(host.config, "rope_parameters")
    heads, width = config.num_attention_heads, config.hidden_size
    head_width = getattr(config, "head_dim", None) or width // heads
    if (reason := refuse(operator, rotary=rotary)) is not None:
        raise SpecError(f"{operator.label!r} cannot be installed in {type(host).__name__}: {reason}")
    if abs(host.scaling * head_width**0.5 - 1) > 1e-6:
        raise SpecError(
            f"this model scales logits by {host.scaling:g}, and operators by 1 / sqrt({head_width}); use another model"
        )
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
    vars(op)["_tied_weights_keys"] = dict.fromkeys(
        f"numbers.{name}" for name in op.numbers.borrowed
    )  # read by save_pretrained
    return op
