"""Imports run one way: policies and predictors know the contracts, backend no concrete policy, bench everything."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

OURS = {"policies", "predictors", "backend", "bench", "conf"}
API = {"policies.api", "predictors.api"}

ALLOWED_OF_OURS = {  # what modules of a package may import of ours, besides the package itself
    "policies": API,
    "predictors": API,
    "backend": API,
    "bench": OURS,
    "conf": set(),
}
ALLOWED_OF_OTHERS = {
    "policies": {"numpy"},
    "predictors": {"numpy", "sklearn", "skops", "joblib", "scipy", "pandas"},
    "conf": set(),
}
ONLY_IN = {  # a library: the modules that may import it
    "torch": ("backend.torch", "predictors.embed"),
    "transformers": ("backend.torch", "predictors.embed"),
    "mlflow": ("bench.",),
    "hydra": ("bench.",),
    "omegaconf": ("bench.",),
    "matplotlib": ("bench.",),
}

MODULES = sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Each module that is imported, wherever in the file, as ``package.module``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module is not None
            yield node.module, node.lineno


def broken_rules(path: Path) -> Iterator[str]:
    module = name_of(path)
    package = module.partition(".")[0]
    for imported, line in imports(path):
        top = imported.partition(".")[0]
        if top == package or top in sys.stdlib_module_names:
            continue
        if top in OURS:
            allowed = bool({top, imported} & ALLOWED_OF_OURS[package])
        elif top in ONLY_IN:
            allowed = module.startswith(ONLY_IN[top])
        else:
            allowed = package not in ALLOWED_OF_OTHERS or top in ALLOWED_OF_OTHERS[package]
        if not allowed:
            yield f"{path.relative_to(ROOT)}:{line} imports {imported}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_run_one_way(path: Path) -> None:
    assert list(broken_rules(path)) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("policies/x.py", "import backend.engine"),
        ("policies/x.py", "from predictors.oracle import Oracle"),
        ("policies/x.py", "import scipy"),
        ("predictors/x.py", "def f():\n    import torch"),
        ("predictors/x.py", "from policies.fcfs import FCFS"),
        ("backend/x.py", "from policies.fcfs import FCFS"),
        ("backend/x.py", "from bench.errors import BadInput"),
        ("backend/x.py", "import transformers"),
        ("backend/x.py", "import hydra"),
    ],
)
def test_the_rules_find_what_they_forbid(
    module: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / module
    path.parent.mkdir()
    path.write_text(line)
    assert len(list(broken_rules(path))) == 1
