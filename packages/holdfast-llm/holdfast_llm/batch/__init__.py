"""Batch processing: model requests are sent to providers in batches and never paid for twice.

    claim → prepare → upload → create → (provider) → poll → read → settle

service.py builds the parts: submit.py submits jobs, recover.py resolves the batches of crashed
workers, collect.py collects answers, call.py makes direct calls. work.py is the interface that an
application implements: a request for an item, and the handling of its reply.
"""
