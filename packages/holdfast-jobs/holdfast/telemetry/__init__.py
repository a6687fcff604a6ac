"""Event subscribers: logs, metrics, traces and alerts, emitted after the commit."""
