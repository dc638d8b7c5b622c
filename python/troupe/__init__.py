"""Troupe's package for Python programs and their users."""
