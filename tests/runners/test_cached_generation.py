"""Generating evaluations keep keys and values, and give the texts that they gave without."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ablate.training.evaluations.likelihood import generate
from ablate.training.loop.interruptible_evaluation import EvaluationStopped, InterruptiblePredict
from ablate.training.loop.model_predict import ModelPredict
from ablate.training.tasks.text.encoder import ByteEncoder
from ablate.variants import Operator, Prefix, Tokens, Transformer, fox, principled, selective, softmax, tiny
from ablate.variants.model.cache import ModelCache

PROMPTS = [list(text.encode()) for text in ("ab", "the cat", "cat", "dog", "a bee", "the bee", "do")]


def model_of(operator: Operator) -> Transformer:
    model = Transformer(tiny("llama3"), [operator] * 2, inputs=Tokens(256), seed=1).eval()
    made = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=made))
    return model


def is_over(text: str) -> bool:
    return sum(map(ord, text)) % 5 == 0


class Counting:
    """A model that remembers how many tokens each call has."""

    def __init__(self, model: Transformer, *, caches: bool) -> None:
        self.model, self.caches, self.tokens = ModelPredict(model, torch.device("cpu"), "float32"), caches, list[int]()

    def __call__(self, inputs: Tensor, visible: Tensor | None = None, *cache: ModelCache | None) -> Tensor:
        self.tokens.append(inputs.shape[1])
        return self.model(inputs, visible, *cache)

    def start_cache(self, tokens: int) -> ModelCache | None:
        return self.model.start_cache(tokens) if self.caches else None


@pytest.mark.parametrize(
    "operator",
    [softmax(), principled("query"), fox(), selective(), Operator(visible=Prefix(length=3))],
    ids=lambda each: each.label,
)
def test_texts_are_those_without_a_cache(operator: Operator) -> None:
    model, encoder = model_of(operator), ByteEncoder()
    with torch.inference_mode():
        plain, cached = (Counting(model, caches=caches) for caches in (False, True))
        expected = generate(plain, PROMPTS, 6, encoder, is_over)
        assert generate(cached, PROMPTS, 6, encoder, is_over) == expected
    assert len(set(expected)) > 1
    assert sum(plain.tokens) > sum(cached.tokens) or operator == selective()
    assert len(plain.tokens) == len(cached.tokens)


def test_an_interrupted_evaluation_goes_on_with_the_same_texts() -> None:
    """The cache is not saved: the next call computes all tokens that it lacks."""
    encoder, answers, calls = ByteEncoder(), list[Any](), [0]
    predict = ModelPredict(model_of(fox()), torch.device("cpu"), "float32")
    with torch.inference_mode():
        expected = generate(predict, PROMPTS, 6, encoder, is_over)

        def stops_after(most: int) -> Callable[[], bool]:
            def stop() -> bool:
                calls[0] += 1
                return calls[0] % most == 0

            return stop

        with pytest.raises(EvaluationStopped):
            generate(InterruptiblePredict(predict, answers, stops_after(5), lambda: None), PROMPTS, 6, encoder, is_over)
        assert len(answers) == 4
        resumed = InterruptiblePredict(predict, answers, lambda: False, lambda: None)
        assert generate(resumed, PROMPTS, 6, encoder, is_over) == expected
        older = [[0] * 3, [1, 2]]  # answers of an earlier release, in another order
        resumed = InterruptiblePredict(predict, older, lambda: False, lambda: None)
        assert generate(resumed, PROMPTS, 6, encoder, is_over) == expected
