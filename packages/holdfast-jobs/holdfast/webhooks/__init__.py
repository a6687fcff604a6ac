"""Webhooks: the changes of the feed, posted to endpoints with a signature."""
