"""Pulling: checks, filters, answers, waiting."""
