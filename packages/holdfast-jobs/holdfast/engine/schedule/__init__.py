"""Schedules: their rows, their ticks, and the dispatcher that fires due ones."""
