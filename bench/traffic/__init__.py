"""Traffic in: synthetic workloads and traces, as columns of requests. Start at ``build.py``."""
