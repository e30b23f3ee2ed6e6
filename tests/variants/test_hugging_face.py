"""Operators in models of the package transformers, tiny and random."""

import copy
import io
import re
from pathlib import Path
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
    Number,
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
    model = transformers.AutoModelForCausalLM.from_config({**CONFIGS, **MORE}[family]()).double().eval()
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


SLIDING = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
MORE = {
    "sliding window": lambda: llama_config(transformers.Qwen2Config, **WIDE, num_key_value_heads=2, **SLIDING),
    "wide heads": lambda: llama_config(**WIDE, num_key_value_heads=1, head_dim=16, attention_bias=True),
    "yarn": lambda: llama_config(
        **WIDE,
        num_key_value_heads=2,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "cross attention": lambda: gpt2_config(n_positions=64, n_embd=32, n_head=4, add_cross_attention=True),
}
INSIDE = torch.tensor([[1, 1, 1, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1, 0, 0]])


@pytest.mark.parametrize("family", [*CONFIGS, *MORE])
def test_softmax_is_the_model_s_own_attention_whatever_is_hidden(family: str) -> None:
    """Padding before, inside and behind; masks of a user's own, as booleans and as numbers."""
    own = model_of(family)
    model = install(copy.deepcopy(own), softmax())
    ids, there = tokens(), INSIDE.bool()
    drawn = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(0)) < 0.6
    mask = (drawn | torch.eye(9, dtype=torch.bool)).tril()
    numbers = torch.zeros(2, 1, 9, 9, dtype=torch.float64).masked_fill(~mask, torch.finfo(torch.float64).min)
    with torch.no_grad():
        came, expected = (each(ids, attention_mask=INSIDE).logits[there] for each in (model, own))
        torch.testing.assert_close(came, expected, rtol=1e-9, atol=1e-10)
        for hidden in (mask, numbers) if family != "sliding window" else ():
            came, expected = (each(ids, attention_mask=hidden).logits for each in (model, own))
            torch.testing.assert_close(came, expected, rtol=1e-9, atol=1e-10)
        for more in ({}, {"num_beams": 3, "num_return_sequences": 2}):
            said = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0, **more}
            assert torch.equal(model.generate(**padded(), **said), own.generate(**padded(), **said))


@pytest.mark.parametrize(
    "refused",
    [
        lambda model: model.generate(tokens(), max_new_tokens=2, cache_implementation="static", do_sample=False),
        lambda model: model(tokens(), attention_mask=torch.full((2, 1, 9, 9), -1.5)),
        lambda model: model(tokens(), attention_mask=torch.ones(2, 1, 9, 8, dtype=torch.bool)),
        lambda model: model.model.layers[0].self_attn(torch.zeros(2, 9, 32).double(), None, attention_mask=object()),
    ],
)
def test_caches_of_fixed_size_and_other_masks_are_refused(refused: Any) -> None:
    model = install(model_of("llama"), softmax())
    with pytest.raises(SpecError) as error:
        refused(model)
    assert len(str(error.value).splitlines()) == 1


AFFINE = affine_scaled().changed(rescale={"kind": "affine", "scale": Number(init=0.5, per="head", link="unit").data()})


@pytest.mark.parametrize("operator", [fox(), principled("query"), affine_scaled(), AFFINE], ids=lambda each: each.label)
@pytest.mark.parametrize("family", CONFIGS)
def test_checkpoints_of_activations_change_no_training(family: str, operator: Operator) -> None:
    """A layer that is computed twice moves its running mean once."""

    def trained(how: dict[str, Any] | None) -> Any:
        model = randomise(install(model_of(family), operator)).train()
        if how is not None:
            getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)(how)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            optimiser.zero_grad()
            torch.manual_seed(step)
            model(**padded(), labels=tokens()).loss.backward()
            assert all(parameter.grad is not None for parameter in model.parameters())
            optimiser.step()
        return model.state_dict()

    expected = trained(None)
    for reentrant in (False, True):
        came = trained({"use_reentrant": reentrant})
        for name, value in expected.items():
            torch.testing.assert_close(came[name], value, rtol=1e-9, atol=1e-10, msg=name)


SHARED = ssa().changed(score={"kind": "ssa", "n": Number(init=1.5, learned=True, link="at_least_one").data()})


@pytest.mark.parametrize("operator", [fox(), principled("query"), affine_scaled(), SHARED], ids=lambda each: each.label)
@pytest.mark.parametrize("family", CONFIGS)
def test_saved_models_come_back_with_the_numbers_of_operators(family: str, operator: Operator, tmp_path: Path) -> None:
    model = randomise(install(model_of(family), operator)).train()
    model(tokens())  # running means move
    model.eval().save_pretrained(tmp_path)
    load = transformers.AutoModelForCausalLM.from_pretrained
    again = install(load(tmp_path, dtype=torch.float64), operator).double().eval()  # numbers come as float32
    torch.testing.assert_close(again(tokens()).logits, model(tokens()).logits, rtol=1e-6, atol=1e-6)
    numbers = {name for name in model.state_dict() if ".operator." in name}
    for name in numbers:
        torch.testing.assert_close(again.state_dict()[name].double(), model.state_dict()[name].double(), msg=name)
    other = load(tmp_path)
    with pytest.raises(SpecError, match="another operator"):
        install(other, qk_norm())
    install(install(other, operator), softmax())(tokens())


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
