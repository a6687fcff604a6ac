"""Model providers over plain HTTP: one request from one item, one answer for one item.

route.py says where a request goes, request.py what is asked and reply.py what comes back.
adapter.py is what every provider can do, and one module each knows a provider's words.
"""
