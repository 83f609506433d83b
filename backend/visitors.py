"""Who came to a server, as the traffic that nobody planned: what the records put beside each request."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from backend.request import Request
from backend.traffic import NONE, Column, Tenant, Traffic

COLUMNS = ("arrival", "prompt_tokens", "output_tokens", "max_tokens", "tenant", "user", "priority", "deadline")


class Visitors:
    """One row a request, in order of submission."""

    def __init__(self, tenants: Sequence[Tenant]) -> None:
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._index = {name: i for i, name in enumerate(self._tenants)}
        self._columns = {name: array("q") for name in COLUMNS}
        self._ids: list[str] = []

    def __len__(self) -> int:
        return len(self._ids)

    def tenant(self, name: str) -> Tenant:
        """A new one has weight 1."""
        if name not in self._tenants:
            self._tenants[name] = Tenant(name)
            self._index[name] = len(self._index)
        return self._tenants[name]

    def add(self, r: Request, output_tokens: int | None) -> int:
        """The row of a request that is about to be submitted; `output_tokens`: its true length, where known.

        Raises ValueError, and keeps nothing, for what is no integer or has more than 64 bits.
        """
        deadline = NONE if r.deadline is None else r.deadline
        length = NONE if output_tokens is None else output_tokens
        tenant = self._index[r.tenant]
        try:
            row = array(
                "q", (r.arrival, r.prompt_tokens, length, r.max_tokens, tenant, int(r.user), r.priority, deadline)
            )
        except (TypeError, OverflowError) as error:
            raise ValueError(
                f"request {r.id}: max_tokens={r.max_tokens!r}, priority={r.priority!r}, user={r.user!r}: {error}"
            ) from error
        for name, value in zip(COLUMNS, row, strict=True):
            self._columns[name].append(value)
        self._ids.append(r.id)
        return len(self._ids) - 1

    def traffic(self) -> Traffic:
        nothing: Column = np.full(len(self), NONE, dtype=np.int64)
        columns: dict[str, Any] = {name: np.array(values, dtype=np.int64) for name, values in self._columns.items()}
        return Traffic(
            **columns,
            cancel_after=nothing,
            cancel_tokens=nothing,
            patience=nothing,
            slo=np.zeros(len(self), dtype=np.int64),
            tenants=list(self._tenants.values()),
            ids=self._ids,
        )
