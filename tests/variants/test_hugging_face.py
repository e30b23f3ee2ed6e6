"""Operators in models of the package transformers, tiny and random."""

import copy
import io
import re
from typing import Any

import pytest
import torch
import transformers
from hugging_face import SIZES, gpt2_config, llama_config
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.variants import (
    Attention,
    AttentionOp,
    Operator,
    Rotary,
    affine_scaled,
    fox,
    install,
    integral,
    principled,
    qk_norm,
    selective,
    softmax,
    ssa,
    undecayed_parameters,
)
from ablate.variants.laws.examples import named_operators
from ablate.variants.model.hugging_face import refuse

WIDE: dict[str, Any] = {"max_position_embeddings": 64, "hidden_size": 32, "num_attention_heads": 4}
NEOX = {**SIZES, **WIDE, "intermediate_size": 64, "num_hidden_layers": 2, "rotary_pct": 0.5, "pad_token_id": 0}
CONFIGS = {
    "gpt2": lambda: gpt2_config(n_positions=64, n_embd=32, n_head=4, pad_token_id=0),
    "llama": lambda: llama_config(**WIDE, num_key_value_heads=2),
    "qwen2": lambda: llama_config(transformers.Qwen2Config, **WIDE, num_key_value_heads=4),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**NEOX),
}


def model_of(family: str) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[family]()).double().eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.2 * torch.randn_like(weights))
    return model


def tokens(rows: int = 2, length: int = 9) -> Tensor:
    return torch.randint(3, 256, (rows, length), generator=torch.Generator().manual_seed(0))


def padded() -> dict[str, Tensor]:
    ids, there = tokens(), torch.ones(2, 9, dtype=torch.long)
    ids[0, :4], there[0, :4] = 0, 0
    return {"input_ids": ids, "attention_mask": there}


def randomise(model: Any) -> Any:
    made = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, AttentionOp):
                for parameter in module.parameters():
                    parameter.add_(0.3 * torch.randn(parameter.shape, generator=made))
    return model.double()


@pytest.mark.parametrize("family", CONFIGS)
def test_softmax_is_the_model_s_own_attention(family: str) -> None:
    own = model_of(family)
    model = install(copy.deepcopy(own), softmax())
    assert set(model.state_dict()) == set(own.state_dict())
    torch.testing.assert_close(model(tokens()).logits, own(tokens()).logits, rtol=1e-9, atol=1e-10)
    there = padded()["attention_mask"].bool()
    torch.testing.assert_close(model(**padded()).logits[there], own(**padded()).logits[there], rtol=1e-9, atol=1e-10)
    for more in ({}, {"num_beams": 3}):
        said = {"max_new_tokens": 8, "do_sample": False, **more}
        assert torch.equal(model.generate(**padded(), **said), own.generate(**padded(), **said))


@pytest.mark.parametrize("operator", list(named_operators()), ids=lambda each: each.label)
@pytest.mark.parametrize("family", CONFIGS)
def test_every_operator_decodes_in_every_model_or_is_refused_in_one_sentence(family: str, operator: Operator) -> None:
    rotary = family != "gpt2"
    if (reason := refuse(operator, rotary=rotary)) is not None:
        with pytest.raises(SpecError, match=re.escape(reason)):
            install(model_of(family), operator)
        assert operator.signals.count > 1  # the list in docs/your-model.md
        return
    model = randomise(install(model_of(family), operator))
    ids = tokens(length=20)
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits
        cache = transformers.DynamicCache(config=model.config)
        parts = [ids[:, :17], ids[:, 17:18], ids[:, 18:]]
        if operator.no_cache is not None:
            model(parts[0], cache=cache)
            with pytest.raises(SpecError):
                model(parts[1], cache=cache)
            return
        came = torch.cat([model(part, cache=cache).logits for part in parts], 1)
    torch.testing.assert_close(came, whole, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("operator", [fox(), principled("query", gate_width=4), qk_norm()])
@pytest.mark.parametrize("family", CONFIGS)
def test_padding_and_beams_change_nothing(family: str, operator: Operator) -> None:
    model, alone = randomise(install(model_of(family), operator)), tokens()[:1, 4:]
    said = {"max_new_tokens": 6, "do_sample": False}
    for beams in (1, 3):
        expected = model.generate(alone, num_beams=beams, **said)[:, 5:]
        came = model.generate(**padded(), num_beams=beams, **said)[:1, 9:]
        assert torch.equal(came, expected)
        slow = model.generate(alone, num_beams=beams, use_cache=False, **said)[:, 5:]
        assert torch.equal(slow, expected)


def test_a_model_trains_and_is_saved() -> None:
    model = install(model_of("llama"), affine_scaled()).train()
    loss = model(**padded(), labels=tokens()).loss
    loss.backward()
    spared = undecayed_parameters(model)
    assert spared
    assert all(parameter.grad is not None for parameter in spared)
    file = io.BytesIO()
    torch.save(model.eval(), file)
    file.seek(0)
    torch.testing.assert_close(torch.load(file, weights_only=False)(tokens()).logits, model(tokens()).logits)
    other = install(model_of("llama"), affine_scaled())
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(tokens()).logits, model(tokens()).logits)


def test_one_operator_per_layer_and_another_later() -> None:
    own = model_of("qwen2")
    model = install(copy.deepcopy(own), [softmax(), ssa()])
    assert not torch.allclose(model(tokens()).logits, own(tokens()).logits)
    install(model, softmax())
    torch.testing.assert_close(model(tokens()).logits, own(tokens()).logits, rtol=1e-9, atol=1e-10)


def scaled() -> Any:
    config = CONFIGS["gpt2"]()
    config.scale_attn_by_inverse_layer_idx = True
    return transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    ("build", "operator"),
    [
        (lambda: torch.nn.Linear(2, 2), softmax()),
        (lambda: model_of("llama"), [softmax()]),
        (lambda: model_of("llama"), integral(2)),
        (lambda: model_of("llama"), principled(gate_width=4, gate_dims="split")),
        (scaled, softmax()),
    ],
)
def test_what_cannot_be_installed_is_refused_before_anything_changes(build: Any, operator: Any) -> None:
    model = build()
    with pytest.raises(SpecError) as refused:
        install(model, operator)
    assert len(str(refused.value).splitlines()) == 1
    assert not any(isinstance(module, AttentionOp) for module in model.modules())


def test_selective_attention_computes_whole_sequences() -> None:
    model = install(model_of("gpt2"), selective())
    assert model(tokens()).logits.isfinite().all()
    with pytest.raises(SpecError):
        model.generate(tokens(), max_new_tokens=2, do_sample=False)
    assert model.generate(tokens(), max_new_tokens=2, do_sample=False, use_cache=False).shape == (2, 11)


@pytest.mark.parametrize("operator", list(named_operators()), ids=lambda each: each.label)
def test_a_layer_is_ours_with_the_same_weights(operator: Operator) -> None:
    """The projections and rotation of Llama against those of `Attention`, also where an operator joins heads."""
    if refuse(operator, rotary=True) is not None:
        pytest.skip("it is refused")
    model = randomise(install(model_of("llama"), operator))
    layer, x = model.model.layers[1].self_attn, torch.randn(2, 9, 32, dtype=torch.float64)
    size: dict[str, Any] = {"width": 32, "heads": 4, "kv_heads": 2, "layer": 1, "layers": 2, "shared": {}}
    own = Attention(operator, positions=Rotary(), **size).double().eval()
    state = {name.removeprefix("operator."): each for name, each in layer.state_dict().items()}
    qkv = torch.cat([state.pop(f"{name}_proj.weight") for name in "qkv"])
    out = state.pop("o_proj.weight")
    own.load_state_dict({**state, "qkv.weight": qkv, "out.weight": out})
    waves = model.model.rotary_emb(x, torch.arange(9)[None])
    came, _ = layer(x, position_embeddings=waves, attention_mask=None)
    torch.testing.assert_close(came, own(x), rtol=1e-5, atol=1e-6)  # the host's cosines are float32
