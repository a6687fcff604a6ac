"""The change feed: committed changes, read from the audit in a resumable order."""
