"""Batch processing: model requests that go to providers in batches and are never paid for twice.

    claim → prepare → upload → create → (provider) → poll → read → settle

service.py builds the parts: submit.py hands jobs over, recover.py resolves the batches of crashed
workers, collect.py brings answers back, call.py makes direct calls. work.py is what an application
implements: a request for an item, and what its reply means.
"""
