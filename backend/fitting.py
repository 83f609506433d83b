"""Whether a request can run at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.blocks import blocks_for
from backend.request import Request

if TYPE_CHECKING:
    from backend.engine import Engine


def unfit(engine: Engine, request: Request) -> str:
    """Why the request can never run, or nothing."""
    prompt, limit = request.prompt_tokens, request.max_tokens
    if prompt < 1:
        return f"prompt of {prompt} tokens: at least 1 is needed"
    if limit < 1 and not request.unlimited:
        return f"max_tokens = {limit} is not >= 1"
    if prompt >= engine.max_model_len:
        return f"prompt of {prompt} tokens leaves no room for output in max_model_len = {engine.max_model_len}"
    room = engine.max_model_len - prompt
    tokens = prompt + (room if request.unlimited else min(limit, room)) - 1
    needed = blocks_for(tokens, engine.pool.block_size)
    if needed > engine.pool.num_blocks:
        return f"needs {needed} KV blocks, {engine.pool.num_blocks} are available"
    bound = engine.config.max_waiting
    if bound is not None and engine.waiting.size >= bound:
        return f"the queue is full: {bound} wait (engine.max_waiting)"
    return ""
