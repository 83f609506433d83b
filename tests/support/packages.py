"""Somebody else's package with entry points, as pip would leave it."""

from __future__ import annotations

from pathlib import Path


def installed(site: Path, name: str, entry_points: str) -> None:
    """Into the folder `site`, which Python has to look in."""
    info = site / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(entry_points)
