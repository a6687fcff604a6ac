"""The calls of the HTTP API. Written by tools/client_code.py."""
