"""The change feed and webhooks."""
