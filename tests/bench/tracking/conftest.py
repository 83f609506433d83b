from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_other_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
