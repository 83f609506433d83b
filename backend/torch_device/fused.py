"""The Llama family as one call a step.

Running 30 small layers through Python costs 10 to 16 ms a step and takes the interpreter some 300 times, which a
planning host then waits for. Here a step is one call that holds neither: embedding, layers, final norm and head in
C++ (kernels/decoder.cpp), with weights packed once. Whether its numbers are those of the model's own modules is
checked when it is loaded (probe.py); if not, the modules run.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from backend.torch_device import native
from backend.torch_device.kv_cache import KVCache
from backend.torch_device.runner import native_cache, native_step
from backend.torch_device.step_inputs import StepInputs

FAMILY = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
GROUP = 8  # outputs of gate, then the same of up, and so on: what the kernel multiplies with one another


def fusible(model: Any) -> bool:
    """Whether the model has the shape that the kernels know; how it computes is for the probe to say."""
    config = model.config
    return (
        type(model).__name__ in FAMILY
        and config.hidden_act == "silu"
        and not getattr(config, "mlp_bias", False)
        and model.model.rotary_emb.inv_freq.numel() * 2 == model.model.layers[0].self_attn.head_dim
    )


class FusedDecoder:
    def __init__(self, model: Any, kernels: native.Kernels, threads: int, max_model_len: int) -> None:
        self.kernels = kernels
        self.description = f"one fused call a step, {threads} threads, {kernels.dtype}"
        self._kept: list[Any] = []  # memory that the structures point to
        config, body, attention = model.config, model.model, model.model.layers[0].self_attn
        positions = torch.arange(max_model_len)[None]
        cosine, sine = body.rotary_emb(torch.zeros(1, 1, dtype=torch.float32), position_ids=positions)
        layers = (native.Layer * len(body.layers))(*(self._layer(layer) for layer in body.layers))
        self.vocabulary = model.lm_head.weight.shape[0]
        self.decoder = native.Decoder(
            layers=len(layers),
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            intermediate=body.layers[0].mlp.up_proj.weight.shape[0],
            threads=threads,
            epsilon=config.rms_norm_eps,
            scale=attention.scaling,
            layer=ctypes.cast(layers, ctypes.POINTER(native.Layer)),
            embedding=self._keep(body.embed_tokens.weight.detach().to(kernels.dtype)),
            final_norm=self._floats(body.norm.weight),
            cosine=self._floats(cosine[0]),
            sine=self._floats(sine[0]),
            head=self._matrix(model.lm_head.weight),
        )
        self._kept.append(layers)

    def logits(self, step: StepInputs, cache: KVCache) -> torch.Tensor:
        out = torch.empty((len(step.sampled), self.vocabulary), dtype=torch.float32)
        self.decoder.cache = native_cache(cache)
        self.kernels.forward(self.decoder, native_step(step), out)
        return out

    def _layer(self, layer: Any) -> native.Layer:
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        biased = attention.q_proj.bias is not None
        norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        return native.Layer(
            self._floats(layer.input_layernorm.weight),
            self._floats(layer.post_attention_layernorm.weight),
            *(None if norm is None else self._floats(norm.weight) for norm in norms),
            self._matrix(
                torch.cat([p.weight for p in projections]), torch.cat([p.bias for p in projections]) if biased else None
            ),
            self._matrix(attention.o_proj.weight, attention.o_proj.bias),
            self._matrix(_interleaved(mlp.gate_proj.weight, mlp.up_proj.weight)),
            self._matrix(mlp.down_proj.weight),
        )

    def _matrix(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> native.Matrix:
        panels = self._keep(self.kernels.pack(weight))
        return native.Matrix(panels, None if bias is None else self._floats(bias), *weight.shape)

    def _floats(self, tensor: torch.Tensor) -> int:
        return self._keep(tensor.detach().float())

    def _keep(self, tensor: torch.Tensor) -> int:
        tensor = tensor.contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()


def _interleaved(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Rows of `gate` and `up` (n, k) by turns of GROUP, filled up with zeros to whole groups."""
    n, k = gate.shape
    filled = torch.zeros((2, -(-n // GROUP) * GROUP, k), dtype=gate.dtype)
    filled[0, :n], filled[1, :n] = gate.detach(), up.detach()
    return filled.view(2, -1, GROUP, k).transpose(0, 1).reshape(-1, k)
