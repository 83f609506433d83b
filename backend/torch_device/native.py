"""The C++ kernels: built once with the compiler at hand, for the processor at hand, and called through ctypes.

A plain shared library with a C interface, not a torch extension: it takes 15 seconds to compile instead of a minute,
does not depend on torch's version, and each call releases the interpreter for its whole length.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
from ctypes import POINTER, Structure, byref, c_float, c_int64, c_void_p
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock

from backend.torch_device.cache_folder import cache_folder

logger = logging.getLogger(__name__)

SOURCES = Path(__file__).parent / "kernels"
FLAGS = ("-O3", "-march=native", "-std=c++20", "-fopenmp", "-shared", "-fPIC")
NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


class Matrix(Structure):
    _fields_ = (("panels", c_void_p), ("bias", c_void_p), ("n", c_int64), ("k", c_int64))


class Layer(Structure):
    _fields_ = (
        ("input_norm", c_void_p),
        ("output_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("qkv", Matrix),
        ("out", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
    )


class Cache(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("blocks", c_int64),
        ("kv_heads", c_int64),
        ("block_size", c_int64),
        ("head_dim", c_int64),
    )


class Decoder(Structure):
    _fields_ = (
        ("layers", c_int64),
        ("hidden", c_int64),
        ("heads", c_int64),
        ("intermediate", c_int64),
        ("threads", c_int64),
        ("epsilon", c_float),
        ("scale", c_float),
        ("layer", POINTER(Layer)),
        ("embedding", c_void_p),
        ("final_norm", c_void_p),
        ("cosine", c_void_p),
        ("sine", c_void_p),
        ("head", Matrix),
        ("cache", Cache),
    )


class Step(Structure):
    _fields_ = (
        ("rows", c_int64),
        ("sequences", c_int64),
        ("samples", c_int64),
        ("table_width", c_int64),
        ("ids", c_void_p),
        ("positions", c_void_p),
        ("slots", c_void_p),
        ("starts", c_void_p),
        ("tables", c_void_p),
        ("sampled", c_void_p),
    )


class Kernels:
    """The functions of the library for one element type; all memory is the caller's."""

    def __init__(self, library: ctypes.CDLL, dtype: torch.dtype) -> None:
        self.dtype = dtype
        name = NAMES[dtype]
        self._pack = getattr(library, f"pack_{name}")
        self._pack.argtypes = (c_void_p, c_int64, c_int64, c_void_p)
        self._multiply = getattr(library, f"multiply_{name}")
        self._multiply.argtypes = (POINTER(Matrix), c_void_p, c_int64, c_int64, c_void_p)
        self._workspace = getattr(library, f"workspace_{name}")
        self._workspace.argtypes, self._workspace.restype = (POINTER(Decoder), POINTER(Step)), c_int64
        self._forward = getattr(library, f"forward_{name}")
        self._forward.argtypes = (POINTER(Decoder), POINTER(Step), c_void_p, c_void_p)
        self._attend = getattr(library, f"attend_{name}")
        self._attend.argtypes = (
            *(POINTER(Cache), POINTER(Step), c_int64, c_int64, c_int64, c_float),
            *(c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
        )
        self._attention_workspace = library.attention_workspace
        self._attention_workspace.argtypes = (POINTER(Cache), POINTER(Step), c_int64)
        self._attention_workspace.restype = c_int64
        self._memory: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """`weight` (n, k) in panels of 16 outputs, the last one filled up with zeros: (ceil(n / 16) * 16 * k,)."""
        n, k = weight.shape
        weight = weight.detach().to(self.dtype).contiguous()
        panels = torch.zeros(-(-n // 16) * 16 * k, dtype=self.dtype)
        self._pack(weight.data_ptr(), n, k, panels.data_ptr())
        return panels

    def multiply(self, weight: Matrix, x: torch.Tensor, threads: int, out: torch.Tensor) -> None:
        """`x` (rows, k) by a packed weight into `out` (rows, n), float32: one product alone, as benchmarks want it."""
        self._multiply(byref(weight), x.data_ptr(), len(x), threads, out.data_ptr())

    def forward(self, decoder: Decoder, step: Step, logits: torch.Tensor) -> None:
        """Writes KV of all rows and `logits` (samples, vocabulary), float32."""
        memory = self._room(self._workspace(byref(decoder), byref(step)))
        self._forward(byref(decoder), byref(step), memory, logits.data_ptr())

    def attend(
        self,
        cache: Cache,
        step: Step,
        layer: int,
        threads: int,
        scale: float,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> torch.Tensor:
        """`query` (rows, heads, dim) in the element type, `key` and `value` (rows, kv_heads, dim) in float32."""
        out = torch.empty_like(query)
        memory = self._room(self._attention_workspace(byref(cache), byref(step), threads))
        pointers = (query.data_ptr(), key.data_ptr(), value.data_ptr(), out.data_ptr(), memory)
        self._attend(byref(cache), byref(step), layer, query.shape[1], threads, scale, *pointers)
        return out

    def _room(self, size: int) -> int:
        """Address of at least `size` bytes that the next call may use, at a multiple of 64."""
        if size + 64 > len(self._memory):
            self._memory = np.empty(size + size // 2 + 64, dtype=np.uint8)
        address: int = self._memory.ctypes.data
        return -(-address // 64) * 64


def load_kernels(dtype: torch.dtype) -> Kernels | None:
    """The kernels for `dtype`, built if this machine has not built them yet; None where that cannot be done."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if dtype not in NAMES or compiler is None:
        logger.warning("no C++ compiler found: attention runs through torch, several times slower (install g++)")
        return None
    try:
        return Kernels(ctypes.CDLL(str(_built(compiler))), dtype)
    except (subprocess.CalledProcessError, OSError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        logger.warning("the kernels cannot be built (%s): attention runs through torch, several times slower", detail)
        return None


def _built(compiler: str) -> Path:
    """The library for these sources, compiler and processor. torch is loaded first, so that both share one OpenMP."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    parts = [source.read_bytes() for source in sorted(SOURCES.iterdir())]
    parts += [text.encode() for text in (version, _processor(), *FLAGS)]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    folder = cache_folder("kernels")
    library = folder / f"decoder-{digest}.so"
    with FileLock(folder / f"{digest}.lock"):
        if not library.exists():
            logger.info("compiling the CPU kernels, once (about 15 s)")
            draft = library.with_suffix(".draft")
            command = [compiler, *FLAGS, str(SOURCES / "decoder.cpp"), "-o", str(draft)]
            subprocess.run(command, capture_output=True, text=True, check=True)
            draft.replace(library)
    return library


def _processor() -> str:
    """What -march=native depends on: a cache folder may be shared by machines."""
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return f"{platform.machine()} {platform.processor()}"
    lines = information.read_text().splitlines()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
