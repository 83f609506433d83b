"""Who needs a KV block in which step.

A decoding request needs one every `block_size` steps, so it is filed once, under the number of its next batch modulo
`block_size`; a step looks at one ring only.
"""

from __future__ import annotations

from collections.abc import Collection

from backend.request import Request


class GrowthRings:
    __slots__ = ("_rings", "_size")

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._rings: list[dict[Request, None]] = [{} for _ in range(block_size)]

    def file(self, request: Request) -> None:
        self._rings[self._ring(request)][request] = None

    def remove(self, request: Request) -> None:
        self._rings[self._ring(request)].pop(request, None)

    def at(self, batch: int) -> Collection[Request]:
        """Those who may need a block for batch number `batch`; with blocks in reserve they need none yet."""
        return self._rings[batch % self._size]

    def _ring(self, request: Request) -> int:
        # its position is a multiple of block_size in batches of this ring, whatever it holds already
        return (request.anchor + 1 - request.target) % self._size
