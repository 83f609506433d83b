"""Gaps between tokens (ITL), pooled over requests.

The step table holds them as rows of equal steps: within a row each gap is taken as the row's mean, so that
percentiles weigh rows by their gaps. Gaps across a preemption are kept one by one.
"""

from __future__ import annotations

import numpy as np

from backend.records import Records
from bench.fairness import accumulate
from bench.population import PS_PER_MS, Mask, Population, Window, rows_of
from bench.sample import Sample
from bench.spans import Ints
from bench.stepclock import StepClock


class TokenGaps:
    """Those that ended inside the window, in milliseconds."""

    def __init__(self, records: Records, people: Population, clock: StepClock, window: Window) -> None:
        self._clock, self._service = clock, records.service
        self._all = records.steps["gaps"].to_numpy(np.int64)
        self._mean = records.steps["gap_time"].to_numpy(np.int64) / clock.count / PS_PER_MS
        after, upto = clock.committed_by([window.start, window.end])
        self._counted = clock.steps_between(int(after), int(upto))
        across = records.gaps[window.holds(records.gaps["committed"].to_numpy(np.int64))]
        self._across = across["gap"].to_numpy(np.int64) / PS_PER_MS
        self._tenant = people.tenant[rows_of(people.number, across["number"].to_numpy(np.int64))]
        resumed = people.tenant[rows_of(people.number, records.gaps["number"].to_numpy(np.int64))]
        self._begun = np.append(people.first_token, records.gaps["committed"]), np.append(people.tenant, resumed)

    def pooled(self) -> Sample:
        return self._sample(self._all, np.full(len(self._across), True))

    def of_tenant(self, tenant: int) -> Sample:
        """In each row, the tenant's tokens but for the first of a request and the first after a preemption."""
        own = self._service[(self._service["tenant"] == tenant) & (self._service["output_tokens"] > 0)]
        first, last, tokens = (own[c].to_numpy(np.int64) for c in ("first_step", "last_step", "output_tokens"))
        made = np.diff(accumulate(first, last, tokens, np.append(0, self._clock.last)))
        times, tenants = self._begun
        row = np.searchsorted(self._clock.committed, times[(tenants == tenant) & (times >= 0)])
        alone = np.bincount(row, minlength=len(made))[: len(made)]
        return self._sample(made - alone, self._tenant == tenant)

    def _sample(self, gaps: Ints, across: Mask) -> Sample:
        each = self._across[across]
        repeats = self._clock.portion(gaps, self._counted)
        return Sample(np.append(self._mean, each), np.append(repeats, np.ones(len(each), dtype=np.int64)))
