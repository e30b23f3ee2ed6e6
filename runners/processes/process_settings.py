"""Settings that all trials of a process share: each with a function that reads it, and one that restores it if any.

The functions are bound when the table is made, so a trial that replaces them changes nothing here.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

_OWN_VARIABLES = frozenset(
    {
        *("CUBLAS_WORKSPACE_CONFIG", "CUDA_MODULE_LOADING", "KMP_DUPLICATE_LIB_OK", "TOKENIZERS_PARALLELISM"),
        *(
            "TORCHINDUCTOR_CACHE_DIR",
            "TORCH_WARM_POOL",
            "TRITON_CACHE_DIR",
            "TRITON_LIBDEVICE_PATH",
            "TRITON_PTXAS_PATH",
        ),
    }
)
"""Variables that this package and torch set as they first need a device, a compiler or a tokenizer."""

_AUTOCAST = ("cpu", "cuda")
_ATTRIBUTES = (
    *("backends.cudnn.enabled", "backends.cudnn.benchmark", "backends.cudnn.deterministic"),
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    *("backends.cuda.matmul.allow_fp16_accumulation", "backends.opt_einsum.enabled"),
    *("backends.mkldnn.enabled", "backends.mkldnn.deterministic", "utils.deterministic.fill_uninitialized_memory"),
    *("backends.fp32_precision", "backends.cuda.matmul.fp32_precision", "backends.cudnn.fp32_precision"),
    *("backends.cudnn.conv.fp32_precision", "backends.cudnn.rnn.fp32_precision", "backends.mkldnn.fp32_precision"),
    *("backends.mkldnn.matmul.fp32_precision", "backends.mkldnn.conv.fp32_precision"),
    "backends.mkldnn.rnn.fp32_precision",
)
"""Plain attributes below torch, which also tell whether TF32 is allowed."""
_FUNCTIONS = (
    ("default dtype", "get_default_dtype", "set_default_dtype"),
    ("grad mode", "is_grad_enabled", "_C._set_grad_enabled"),
    ("inference mode", "is_inference_mode_enabled", None),
    ("anomaly detection", "is_anomaly_enabled", "set_anomaly_enabled"),
    ("deterministic algorithms", "get_deterministic_debug_mode", "set_deterministic_debug_mode"),
    ("float32 matmul precision", "get_float32_matmul_precision", "set_float32_matmul_precision"),
    ("flash attention", "backends.cuda.flash_sdp_enabled", "backends.cuda.enable_flash_sdp"),
    ("efficient attention", "backends.cuda.mem_efficient_sdp_enabled", "backends.cuda.enable_mem_efficient_sdp"),
    ("math attention", "backends.cuda.math_sdp_enabled", "backends.cuda.enable_math_sdp"),
    ("cuDNN attention", "backends.cuda.cudnn_sdp_enabled", "backends.cuda.enable_cudnn_sdp"),
    ("order of attention kernels", "_C._get_sdp_priority_order", "_C._set_sdp_priority_order"),
    ("attention fast path", "backends.mha.get_fastpath_enabled", "backends.mha.set_fastpath_enabled"),
    ("linear algebra library", "backends.cuda.preferred_linalg_library", "backends.cuda.preferred_linalg_library"),
    ("autocast cache", "is_autocast_cache_enabled", "set_autocast_cache_enabled"),
    ("threads", "get_num_threads", "set_num_threads"),
    ("threads between operations", "get_num_interop_threads", None),
)
"""Name, getter and setter below torch."""
_CONFIGURATIONS = ("torch._dynamo.config", "torch._functorch.config", "torch._inductor.config")


class SharedSetting(NamedTuple):
    """A value shared by all code of the process."""

    read: Callable[[], Any]
    """Returns a value that later changes do not alter."""
    write: Callable[[Any], object] | None
    """None if the value cannot be restored."""


def python_settings() -> Iterator[tuple[str, SharedSetting]]:
    """Yield the settings of Python and the operating system."""
    yield "working directory", SharedSetting(_working_directory, os.chdir)
    yield "environment", SharedSetting(_environment, _set_environment)
    yield "signal mask", SharedSetting(lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()), _set_signal_mask)
    yield "alarm", SharedSetting(lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0, lambda _: signal.alarm(0))
    for number in sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}):
        name = number.name if isinstance(number, signal.Signals) else str(number)
        yield f"signal handler {name}", _handler(number)
    yield "import path", SharedSetting(lambda: list(sys.path), lambda value: sys.path.__setitem__(slice(None), value))
    yield "umask", SharedSetting(_umask, os.umask)
    yield "recursion limit", SharedSetting(sys.getrecursionlimit, sys.setrecursionlimit)
    yield "garbage collection", SharedSetting(gc.isenabled, lambda value: gc.enable() if value else gc.disable())


def numpy_settings() -> Iterator[tuple[str, SharedSetting]]:
    """Yield the settings of numpy, which is loaded."""
    import numpy as np

    write = np.seterr
    yield "numpy errors", SharedSetting(np.geterr, lambda value: write(**value))


def torch_settings() -> Iterator[tuple[str, SharedSetting]]:
    """Yield the settings of torch, which is loaded."""
    import torch
    import torch.backends.mha
    import torch.backends.opt_einsum
    import torch.utils.deterministic

    for name, getter, setter in _FUNCTIONS:
        yield name, SharedSetting(attrgetter(getter)(torch), None if setter is None else attrgetter(setter)(torch))
    for path in _ATTRIBUTES:
        yield f"torch.{path}", _attribute(torch, path)
    for device in _AUTOCAST:
        yield f"autocast on {device}", _autocast(torch, device)
    contexts, set_device = torch._GLOBAL_DEVICE_CONTEXT, torch.set_default_device
    yield (
        "default device",
        SharedSetting(
            lambda: getattr(getattr(contexts, "device_context", None), "device", None), lambda value: set_device(value)
        ),
    )
    for kind in ("dispatch", "function"):
        depth, pop = (getattr(torch._C, f"_{what}_torch_{kind}_stack") for what in ("len", "pop"))
        yield f"{kind} modes", SharedSetting(depth, partial(_shorten, depth, pop))
    yield "denormal numbers", SharedSetting(_flushes_denormals, torch.set_flush_denormal)
    for name in _CONFIGURATIONS:
        if name in sys.modules:
            yield name, _configuration(sys.modules[name])
    yield "global hooks", _hooks(torch)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _OWN_VARIABLES}


def _set_environment(value: dict[str, str]) -> None:
    for name in _environment().keys() - value.keys():
        del os.environ[name]
    os.environ.update(value)


def _working_directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109  (a Path costs more)
    except FileNotFoundError:  # it was deleted
        return None


def _set_signal_mask(value: set[signal.Signals]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, value)


def _handler(number: int) -> SharedSetting:
    return SharedSetting(lambda: _read_handler(number), lambda value: signal.signal(number, value))


def _read_handler(number: int) -> Any:
    """Return the handler of a signal; torch's, which it sets for the processes of a DataLoader, as the default."""
    handler = signal.getsignal(number)
    of_torch = getattr(handler, "__module__", "") == "torch.utils.data._utils.signal_handling"
    return signal.SIG_DFL if of_torch else handler


def _umask() -> int:
    """Return the mask of new files' modes; `os.umask` would set another one to tell it."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition("Umask:")[2].split(maxsplit=1)[0], 8)


def _attribute(torch: Any, path: str) -> SharedSetting:
    owner, _, name = path.rpartition(".")
    holder, read = attrgetter(owner)(torch), attrgetter(path)
    return SharedSetting(lambda: read(torch), lambda value: setattr(holder, name, value))


def _autocast(torch: Any, device: str) -> SharedSetting:
    enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    enable, set_dtype, clear = torch.set_autocast_enabled, torch.set_autocast_dtype, torch.clear_autocast_cache

    def write(value: tuple[bool, Any]) -> None:
        enable(device, value[0])
        set_dtype(device, value[1])
        clear()

    return SharedSetting(lambda: (enabled(device), dtype(device)), write)


def _shorten(depth: Callable[[], int], pop: Callable[[], object], wanted: int) -> None:
    while depth() > wanted:
        pop()


_SMALLEST = [sys.float_info.min, 5e-324]
"""In a list, so that Python does not compute with them before it runs."""


def _flushes_denormals() -> bool:
    """Return True if a denormal result or operand counts as 0; torch has no function that says so."""
    normal, denormal = _SMALLEST
    return normal / 2 == 0.0 or denormal * 2.0**60 == 0.0


def _configuration(module: Any) -> SharedSetting:
    """Return the setting of a module of the compiler; its hash is kept, and computed again only after a change."""
    before = module.get_config_copy()

    def write(_: bytes) -> None:
        for name, value in module.get_config_copy().items():
            if name in before and value != before[name]:
                setattr(module, name, before[name])

    return SharedSetting(module.get_hash, write)


def _hooks(torch: Any) -> SharedSetting:
    places = [vars(torch.nn.modules.module), vars(sys.modules[torch.optim.Optimizer.__module__])]
    registries = [
        value
        for place in places
        for name, value in place.items()
        if name.startswith("_global_") and name.endswith("_hooks") and isinstance(value, dict)
    ]

    def write(values: list[tuple[Any, ...]]) -> None:
        for hooks, value in zip(registries, values, strict=True):
            hooks.clear()
            hooks.update(value)

    return SharedSetting(lambda: [tuple(each.items()) for each in registries], write)
