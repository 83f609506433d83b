"""From time to step number and back: the step table as a clock.

A row stands for n equal steps, so that within a row everything is linear in the step: steps begin and commit one
period apart, and the device is busy for busy/n at the beginning of each. Rows are exact, what lies within one is
exact if its steps last equally long.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.spans import Ints, Spans


class StepClock:
    def __init__(self, steps: pd.DataFrame) -> None:
        self.count: Ints = steps["steps"].to_numpy(np.int64)
        self.last: Ints = steps["first_step"].to_numpy(np.int64) + self.count - 1
        """Number of the last step of each row; steps are numbered from 1 without gaps."""
        self.committed: Ints = steps["committed"].to_numpy(np.int64)
        self._started: Ints = steps["started"].to_numpy(np.int64)
        self._busy: Ints = steps["busy"].to_numpy(np.int64)
        self._span: Ints = steps["ended"].to_numpy(np.int64) - self._started
        self._work = self._busy / self.count
        self._period = np.maximum(1.0, (self._span - self._work) / np.maximum(self.count - 1, 1))
        self._busy_upto = np.append(0, np.cumsum(self._busy))
        self._last = np.append(0, self.last)

    def committed_by(self, times: npt.ArrayLike) -> Ints:
        """Number of the last step committed at or before each of `times`; 0: none."""
        t = np.asarray(times, dtype=np.int64)
        done = np.searchsorted(self.committed, t, side="right")
        if len(self.committed) == 0:
            return done
        row = np.minimum(done, len(self.committed) - 1)
        missing = np.ceil((self.committed[row] - t) / self._period[row])
        within = np.maximum(self.count[row] - np.maximum(missing, 0), 0).astype(np.int64)
        return self._last[done] + np.where(done == row, within, 0)

    def busy_by(self, times: npt.ArrayLike) -> Ints:
        """Time that the device has computed before each of `times`."""
        t = np.asarray(times, dtype=np.int64)
        begun = np.searchsorted(self._started, t, side="right")
        if len(self._started) == 0:
            return np.zeros_like(t)
        row = np.maximum(begun - 1, 0)
        inside = np.clip(t - self._started[row], 0, self._span[row])
        step = np.minimum(np.floor(inside / self._period[row]), self.count[row] - 1)
        worked = np.rint(step * self._work[row] + np.minimum(inside - step * self._period[row], self._work[row]))
        whole = (self._busy[row] == self._span[row]) | (inside == self._span[row])
        part = np.where(
            whole, np.minimum(inside, self._busy[row]), np.minimum(worked, self._busy[row]).astype(np.int64)
        )
        return np.asarray(self._busy_upto[row] + part)

    def busy_in(self, spans: Spans) -> int:
        return int((self.busy_by(spans.until) - self.busy_by(spans.since)).sum())

    def steps_between(self, after: int, upto: int) -> Ints:
        """(rows,) how many steps of each row have a number in after+1 .. upto."""
        counted: Ints = np.maximum(np.minimum(self.last, upto) - np.maximum(self.last - self.count, after), 0)
        return counted

    def portion(self, column: Ints, counted: Ints) -> Ints:
        """(rows,) what `column`, a sum over all steps of a row, amounts to in `counted` of them."""
        return column // self.count * counted + column % self.count * counted // self.count
