"""Decisions, and nothing else: no clock is read here, nothing waits, no randomness is drawn."""
