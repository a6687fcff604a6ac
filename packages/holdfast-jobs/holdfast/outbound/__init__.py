"""Outbound calls: guarded, bounded in time, never retried automatically."""
