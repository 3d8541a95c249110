"""Figures, never verdicts: each module prints what it measured beside a baseline of the same machine."""
