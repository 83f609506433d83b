"""The pool of KV blocks: numbers only, one owner each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from backend.errors import EngineBroken


def blocks_for(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)


class BlockPool:
    __slots__ = ("_free", "allocated", "block_size", "num_blocks")

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(range(num_blocks - 1, -1, -1))
        self.allocated = 0

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """`count` blocks; the caller has checked that they are there."""
        if count > len(self._free):
            raise EngineBroken(f"{count} blocks asked, {len(self._free)} free")
        if count == 0:
            return []
        taken = self._free[-count:]
        del self._free[-count:]
        self.allocated += count
        return taken

    def grow(self, tables: Sequence[list[int]]) -> None:
        """One more block at the end of each table."""
        for table, block in zip(tables, self.take(len(tables)), strict=True):
            table.append(block)

    def give_back(self, table: list[int]) -> None:
        """Free all of `table` and empty it."""
        self._free.extend(reversed(table))
        self.allocated -= len(table)
        table.clear()

    def audit(self, tables: Iterable[list[int]]) -> None:
        """Full recount: every block is free once or in one table once."""
        seen = sorted(self._free + [block for table in tables for block in table])
        if seen != list(range(self.num_blocks)):
            raise EngineBroken("a block is lost, free twice, or in two tables")
