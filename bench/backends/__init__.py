"""What executes a run: a simulated GPU, or a real model. Start at ``build.py``."""
