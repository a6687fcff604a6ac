"""Model providers over plain HTTP: one request and one answer per item.

route.py defines the destination of a request, request.py its content and reply.py its answer.
adapter.py is the interface of all providers, with one module per provider API.
"""
