"""Runs code of the package with the shapes of its annotations checked: `python checked_shapes.py JOB [FILE OLD NEW]`.

Arguments, results and fields of named tuples are checked at every call. With a file, OLD in it is replaced by NEW.
"""

import sys
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import jaxtyping
import torch
from beartype import beartype


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the annotations of a function that have a shape, and no others."""
    shaped = {name: each for name, each in function.__annotations__.items() if _has_shape(each)}
    function.__annotations__ = shaped
    return beartype(function) if shaped else function


def _has_shape(annotation: object) -> bool:
    array = isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray)
    return array or any(map(_has_shape, get_args(annotation)))


def operators() -> None:
    """Every operator on every path of a CPU, forward and backward, causal and under a mask."""
    from ablate.variants.attend import Heads
    from ablate.variants.laws.examples import every_choice, named_operators
    from ablate.variants.laws.inputs import random_inputs
    from ablate.variants.laws.paths import run_path
    from ablate.variants.paths.case import Case
    from ablate.variants.paths.choose import PATHS

    check_named_tuples()
    padding = torch.ones(2, 1, 1, 40, dtype=torch.bool)
    padding[1, ..., 30:] = False
    for operator in {each.key: each for each in (*named_operators(), *every_choice())}.values():
        for path in PATHS:
            if path.name == "triton" or path.cannot(operator):
                continue
            inputs = random_inputs(operator, length=40).following()
            for mask in (None, padding):
                heads = Heads(inputs.q, inputs.k, inputs.v, mask)
                if path.cannot_call(Case.of(heads)) is None:
                    run_path(path.name, operator, inputs, heads).sum().backward()


def decoding() -> None:
    """Models that keep keys and values, with grouped heads, numbers by token, sink tokens and biases of positions."""
    from ablate.variants import Alibi, Tokens, Transformer, differential, fox, llama2, principled, qk_norm

    check_named_tuples()
    backbone = llama2(layers=2, heads=4, width=16, feedforward_width=16).changed(kv_heads=2)
    for operator in (qk_norm(), fox(), principled("query"), differential()):
        for fields in ({}, {"sink_tokens": 2, "token_shift": "both"}, {"positions": Alibi()}):
            model = Transformer(backbone.changed(**fields), [operator] * 2, inputs=Tokens(13), seed=1)
            assert model.generate(torch.zeros(3, 5, dtype=torch.int64), 4).shape == (3, 9)


def trials(first: str = "") -> None:
    """Every task with the default probes, every probe, evaluation, optimiser and part of a model, for two steps.

    With `first`, only those whose names begin so.
    """
    from golden_child import Recorder
    from golden_trials import trials

    from ablate.training.loop import cost
    from ablate.training.loop.train import train
    from ablate.training.trial import Trial

    check_named_tuples()
    probing = Trial.model_fields["probing"].get_default(call_default_factory=True)
    with patch.object(cost, "flops", lambda *_: None):
        for name, trial in trials(2):
            if name.startswith(("operator", "grown", "link", "encoder")) or not name.startswith(first):
                continue
            changed = {"probing": probing} if name.startswith(("task", "variant")) else {}
            train(trial.changed(execution=trial.execution.changed(device="cpu"), **changed), Recorder())


def check_named_tuples() -> None:
    """Check the fields of named tuples of the package that are made from now on."""
    for cls in _named_tuples():
        cls.__new__ = staticmethod(jaxtyping.jaxtyped(cls.__new__, typechecker=check_shapes))


def _named_tuples() -> Iterator[Any]:
    for module in [each for name, each in sys.modules.items() if name.startswith(ROOMS)]:
        for cls in vars(module).values():
            own = isinstance(cls, type) and issubclass(cls, tuple) and cls.__module__ == module.__name__
            if own and any(map(_has_shape, cls.__annotations__.values())):
                yield cls


ROOMS = ("ablate.variants", "ablate.training")


def _edit(file: str, old: str, new: str) -> None:
    """Let the source of `file` have another text when it is imported."""
    read = SourceFileLoader.get_data

    def get_data(loader: SourceFileLoader, path: str) -> bytes:
        data = read(loader, path)
        if path.endswith(file):
            assert data.count(old.encode()) == 1, old
            data = data.replace(old.encode(), new.encode())
        return data

    SourceFileLoader.get_data = get_data  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.modules["checked_shapes"] = sys.modules["__main__"]
    sys.path.insert(0, str(Path(__file__).parent))
    if sys.argv[2:]:
        _edit(*sys.argv[2:])
    jaxtyping.install_import_hook(ROOMS, "checked_shapes.check_shapes")
    torch.set_num_threads(1)
    job, *words = sys.argv[1].split()
    {"operators": operators, "decoding": decoding, "trials": trials}[job](*words)
