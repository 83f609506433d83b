"""Whether there is a GPU for torch, and if not, why."""

from __future__ import annotations

import torch


def cuda_missing() -> str:
    """Empty if CUDA can be used."""
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        return f"torch {torch.__version__} is built without CUDA"
    return "" if torch.cuda.is_available() else f"torch {torch.__version__} finds no CUDA device"
