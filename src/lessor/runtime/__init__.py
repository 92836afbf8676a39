"""Drives the core with real clocks and threads."""
