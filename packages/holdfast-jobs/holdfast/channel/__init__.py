"""Channels: one adapter per provider, and the lookups that each of them supports."""
