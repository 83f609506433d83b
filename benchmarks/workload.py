"""Traffic as columns, for the scripts beside this one."""

from __future__ import annotations

import numpy as np

from backend.traffic import NONE, Column, Tenant, Traffic


def traffic(
    arrival: Column, prompt: Column, output: Column, *, tenants: int = 1, concurrency: int | None = None
) -> Traffic:
    """A request a row, tenants in turn; nobody leaves early, and only the model ends an answer."""
    n = len(arrival)
    zero, none = np.zeros(n, dtype=np.int64), np.full(n, NONE, dtype=np.int64)
    return Traffic(
        arrival=arrival,
        prompt_tokens=prompt,
        output_tokens=output,
        max_tokens=none,
        tenant=np.arange(n, dtype=np.int64) % tenants,
        user=zero,
        priority=zero,
        deadline=none,
        cancel_after=none,
        cancel_tokens=none,
        patience=none,
        slo=zero,
        tenants=[Tenant(f"tenant-{i}") for i in range(tenants)],
        concurrency=concurrency,
    )
