"""Readers of traces, one format a file. Start at ``formats.py``."""
