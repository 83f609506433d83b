"""From a name to a model that runs rightly here, or a refusal that says why."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from backend.torch_device.fetch import smollm2_folder
from backend.torch_device.hub import check_hub
from backend.torch_device.kv_cache import CPU, CacheShape
from backend.torch_device.modules import UnsupportedModel

logger = logging.getLogger(__name__)

ABSOLUTE_OR_FIXED = ("default", "linear", "llama3", "yarn", "proportional")
"""Kinds of rotary positions whose angles do not depend on how long the sequences beside are."""


@dataclass(slots=True)
class Loaded:
    name: str
    model: Any
    tokenizer: Any | None
    eos: frozenset[int]
    """All ids that the model's configurations declare as the end."""
    max_model_len: int
    vocabulary: int
    cache: CacheShape


def load(source: Any, dtype: str = "auto", max_model_len: int | None = None, place: torch.device = CPU) -> Loaded:
    """`source`: a folder, a hub id, "smollm2", or a model that is already there.

    Raises UnsupportedModel, BadConfig for a name that leads nowhere, and what transformers raises where nothing can be
    loaded from it.
    """
    tokenizer = None
    if isinstance(source, torch.nn.Module):
        model: Any = source
        name = type(model).__name__
    else:
        name = str(source)
        path = smollm2_folder() if name == "smollm2" else source
        if not Path(path).is_dir():
            check_hub(name)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
        tokenizer = _tokenizer(path)
    model = model.eval().requires_grad_(False).to(place)
    config = model.config.get_text_config(decoder=True)
    length = _length(name, config, max_model_len)
    _refuse_what_would_be_wrong(name, model, config, length)
    heads = config.num_attention_heads
    shape = CacheShape(
        config.num_hidden_layers,
        getattr(config, "num_key_value_heads", None) or heads,
        getattr(config, "head_dim", None) or config.hidden_size // heads,
        model.dtype,
    )
    return Loaded(name, model, tokenizer, _ends(model), length, config.vocab_size, shape)


def _tokenizer(path: Any) -> Any | None:
    try:
        return AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, TypeError) as error:
        logger.info("%s has no tokenizer (%s): prompts must be ids", path, str(error).splitlines()[0])
        return None


def _length(name: str, config: Any, wanted: int | None) -> int:
    known: int | None = getattr(config, "max_position_embeddings", None)
    length = known if wanted is None else wanted
    if length is None:
        raise UnsupportedModel(f"model {name}: its configuration names no longest sequence; set max_model_len")
    if wanted is not None and known is not None and wanted > known:
        raise UnsupportedModel(f"model {name}: max_model_len {wanted} is more than the {known} that the model can hold")
    return length


def _refuse_what_would_be_wrong(name: str, model: Any, config: Any, length: int) -> None:
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModel(f"model {name}: an encoder-decoder; only decoders run here")
    if not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedModel(f"model {name}: {type(model).__name__} does not let its attention be replaced")
    kinds = set(getattr(config, "layer_types", None) or ())
    strange = kinds - {"full_attention", "sliding_attention"}
    if strange:
        raise UnsupportedModel(f"model {name}: layers of {', '.join(sorted(strange))}; only full attention runs here")
    window = getattr(config, "sliding_window", None)
    if window and (not kinds or "sliding_attention" in kinds) and length > window:
        raise UnsupportedModel(
            f"model {name}: a sliding window of {window} tokens, which is not done here; "
            f"with max_model_len={window} it never slides"
        )
    rope = getattr(config, "rope_parameters", None) or {}
    for kind in {
        part["rope_type"] for part in (rope, *rope.values()) if isinstance(part, dict) and "rope_type" in part
    }:
        if kind not in ABSOLUTE_OR_FIXED:
            raise UnsupportedModel(f"model {name}: rotary positions of type {kind} depend on the sequences beside")


def _ends(model: Any) -> frozenset[int]:
    ends: set[int] = set()
    for config in (model.config, model.config.get_text_config(decoder=True), getattr(model, "generation_config", None)):
        declared = getattr(config, "eos_token_id", None)
        if declared is not None:
            ends.update([declared] if isinstance(declared, int) else declared)
    return frozenset(ends)
