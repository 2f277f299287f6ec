"""Timed messages in the store: the wheel, its log and checkpoint, in the official layouts."""
