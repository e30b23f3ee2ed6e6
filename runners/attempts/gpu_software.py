"""Versions of the software that decides the speed of attention on a GPU."""


def gpu_software(device: str) -> dict[str, str | None]:
    """Return the versions of CUDA and cuDNN, and the kernels of fused attention in the order that PyTorch tries."""
    import torch
    from torch.nn.attention import _cur_sdpa_kernel_backends

    probe = torch.empty(1, 1, 16, 16, device=device)
    torch._fused_sdp_choice(probe, probe, probe)  # PyTorch sets its order with the first choice
    kernels = [each.name for each in _cur_sdpa_kernel_backends(with_priority=True)]
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return {
        "cuda": torch.version.cuda,
        "cudnn": None if cudnn is None else str(cudnn),
        "sdpa": ", ".join(name.removesuffix("_ATTENTION").lower() for name in kernels),
    }
