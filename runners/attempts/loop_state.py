"""State of training code: taken as tensors and plain data for a checkpoint, and put back into the same variables.

A state is a mapping of names to objects, or a function without arguments that returns one. Objects with `state_dict`
and `load_state_dict`, generators of random numbers, tensors, arrays, lists and dictionaries are put back in place. A
plain value, such as the best loss so far, is put back into a variable. So a function is needed, and the name in the
mapping is that of the variable. Objects that are made anew, such as a compiled model, need a function, too.
"""

import random
import sys
from collections.abc import Mapping
from types import CellType
from typing import Any

from ablate.grid.errors import SpecError
from ablate.grid.run import State
from ablate.grid.values import show

_PLAIN = (type(None), bool, int, float, str, bytes)


def require_restorable(state: State) -> None:
    """Raise SpecError for a state that no checkpoint can hold, or that a resumed run could not put back."""
    values, again = _values(state), _values(state)
    for name, value in values.items():
        _require_holdable(name, value)
        if _is_plain(value):
            if not callable(state):
                raise SpecError(
                    f"the state {name!r} is {show(value)}, which a mapping cannot change in place; give a function: "
                    f"state=lambda: {{{name!r}: {name}, ...}}"
                )
            _ = _cell(state, name)
        elif _is_snapshot(value) or not _is_same(value, again[name]):
            raise SpecError(
                f"the state {name!r} is a {type(value).__name__} that is made anew, so nothing would be put back into "
                f"what it is made of; name that itself: {{{name!r}: model}}, and not model.state_dict()"
            )


def take(state: State) -> dict[str, Any]:
    """Return the state as tensors and plain data.

    Raises SpecError for a state that is no mapping, or a value that no checkpoint can hold.
    """
    values = _values(state)
    for name, value in values.items():
        _require_holdable(name, value)
    return {name: _plain_state(value) for name, value in values.items()}


def put_back(state: State, saved: Mapping[str, Any]) -> None:
    """Put what `take` returned back into the objects and variables of `state`.

    Raises what their `load_state_dict` raises, and ValueError if they are other ones.
    """
    values = _values(state)
    if values.keys() != saved.keys():
        raise ValueError(f"the state has {sorted(values)}, and the checkpoint has {sorted(saved)}")
    for name, value in values.items():
        if _is_plain(value):
            _cell(state, name).cell_contents = saved[name]
        elif _is(value, "torch", "Tensor") and value.shape != saved[name].shape and callable(state):
            value.data = saved[name].to(value.device)  # it had grown
        else:
            _put_into(value, saved[name])


def random_states() -> dict[str, Any]:
    """Return the states of the generators of Python, numpy and torch that are loaded, as tensors and plain data."""
    states: dict[str, Any] = {"python": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None:
        states["numpy"] = _plain_state(numpy.random.get_state())
    if (torch := sys.modules.get("torch")) is not None:
        states["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def set_random_states(states: Mapping[str, Any]) -> None:
    """Put `random_states()` back."""
    random.setstate(states["python"])
    if "numpy" in states:
        import numpy as np

        name, keys, *rest = states["numpy"]
        np.random.set_state((name, keys.numpy(), *rest))
    if "torch" in states:
        import torch

        torch.set_rng_state(states["torch"])
        if "cuda" in states:
            torch.cuda.set_rng_state_all(states["cuda"])


def _values(state: State) -> Mapping[str, Any]:
    values = state() if callable(state) and not _has_state_dict(state) else state
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise SpecError(
            f'the state of a loop is {show(values)}, and no mapping of names; write state=lambda: {{"model": model}}'
        )
    return values


def _require_holdable(name: str, value: Any) -> None:
    if any(fits(value) for fits in (_is_plain, _has_state_dict, _is_random, _is_array, _is_data)):
        return
    inner = [*(value.values() if isinstance(value, dict) else value)] if isinstance(value, dict | list | tuple) else []
    if any(map(_has_state_dict, inner)):
        raise SpecError(
            f"the state {name!r} is a {type(value).__name__} of objects; give each a name of its own: "
            f'state={{"{name}_0": ..., "{name}_1": ...}}'
        )
    raise SpecError(
        f"the state {name!r} is a {type(value).__name__}, which a checkpoint cannot hold; keep objects with state_dict "
        "and load_state_dict, generators, tensors, arrays and plain data"
    )


def _is_snapshot(value: Any) -> bool:
    """Return True for what `state_dict()` of a module or an optimiser returns."""
    return isinstance(value, dict) and (hasattr(value, "_metadata") or {"state", "param_groups"} <= value.keys())


def _is_same(value: Any, again: Any) -> bool:
    """Return True if both are one object, or views of one memory."""
    if _is(value, "torch", "Tensor"):
        return value is again or value.data_ptr() == again.data_ptr() != 0
    if _is(value, "numpy", "ndarray"):
        return value is again or value.__array_interface__["data"] == again.__array_interface__["data"]
    return value is again or _has_state_dict(value)


def _cell(state: Any, name: str) -> CellType:
    """Return the variable `name` of the function around the function `state`."""
    cells = dict(zip(state.__code__.co_freevars, state.__closure__ or (), strict=True)) if _is_function(state) else {}
    if name not in cells:
        raise SpecError(
            f"the state {name!r} is a plain value, and no variable of train that the function uses is called so; name "
            "it as its variable, so that a resumed run can put it back, or keep an attribute in a list or a dictionary"
        )
    cell: CellType = cells[name]
    return cell


def _is_function(value: Any) -> bool:
    return hasattr(value, "__code__")


def _is_plain(value: Any) -> bool:
    return (
        type(value) in _PLAIN or (type(value) is tuple and all(map(_is_data, value))) or _is(value, "numpy", "generic")
    )


def _is_data(value: Any) -> bool:
    """Return True for tensors and plain data, also in lists and dictionaries."""
    if isinstance(value, dict):
        return all(map(_is_data, value)) and all(map(_is_data, value.values()))
    return all(map(_is_data, value)) if isinstance(value, list) else _is_plain(value) or _is(value, "torch", "Tensor")


def _has_state_dict(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _is_random(value: Any) -> bool:
    return _is_generator(value) or _is_bit_generator(value) or isinstance(value, random.Random)


def _is_generator(value: Any) -> bool:
    return _is(value, "torch", "Generator")


def _is_bit_generator(value: Any) -> bool:
    """Return True for a generator of numpy."""
    return "numpy" in sys.modules and hasattr(value, "bit_generator")


def _is_array(value: Any) -> bool:
    return _is(value, "torch", "Tensor") or _is(value, "numpy", "ndarray")


def _is(value: Any, module: str, name: str) -> bool:
    """Return True for an instance of a class of a module that may not be loaded."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _plain_state(value: Any) -> Any:
    """Return the state of an object as tensors and plain data, uncopied: a checkpoint is written at once."""
    if _has_state_dict(value):
        return _plain_state(value.state_dict())
    if _is_generator(value):
        return value.get_state()
    if _is_bit_generator(value):
        return value.bit_generator.state
    if isinstance(value, random.Random):
        return value.getstate()
    if _is(value, "numpy", "ndarray"):
        import torch

        return torch.from_numpy(value.copy())
    if _is(value, "numpy", "generic"):
        return value.item()
    if isinstance(value, Mapping):
        return {name: _plain_state(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain_state(each) for each in value)
    return [_plain_state(each) for each in value] if isinstance(value, list) else value


def _put_into(value: Any, saved: Any) -> None:
    if _has_state_dict(value):
        value.load_state_dict(saved)
    elif _is_generator(value):
        value.set_state(saved)
    elif _is_bit_generator(value):
        value.bit_generator.state = saved
    elif isinstance(value, random.Random):
        value.setstate(saved)
    elif _is(value, "numpy", "ndarray"):
        value[...] = saved.numpy()
    elif isinstance(value, list):
        value[:] = saved
    elif isinstance(value, dict):
        value.clear()
        value.update(saved)
    else:
        import torch

        with torch.no_grad():
            value.copy_(saved)


def copy_to_cpu(value: Any) -> Any:
    """Copy tensors to the CPU, since what follows a loop may change them."""
    if isinstance(value, Mapping):
        return {name: copy_to_cpu(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copy_to_cpu(each) for each in value)
    torch = sys.modules.get("torch")
    return value.detach().to("cpu", copy=True) if torch is not None and isinstance(value, torch.Tensor) else value
