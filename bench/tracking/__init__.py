"""Where runs are recorded: the seam (api), MLflow behind it, and what ends a run."""
