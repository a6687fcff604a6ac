"""Workflows: graphs of jobs with dependencies, and jobs that wait for events or for a time."""
