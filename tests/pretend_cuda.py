"""Makes torch look like a build for CUDA, on a machine without; a module to preload."""

import torch

torch.version.cuda = "12.8"
