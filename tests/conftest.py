from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real traces and pairs, kept beside the project."""
    folder = Path(os.environ.get("BATCHYARD_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"real data not found: no {folder}/data (set BATCHYARD_SHARED)")
    return folder
