"""The batch lane: model work that is handed to providers in batches, and never paid for twice.

    claim → prepare → upload → create → (provider) → poll → read → settle

submit.py hands over, recover.py resolves what a dead worker left, collect.py brings answers back.
work.py is what an application writes: a request from an item, and what to do with its reply.
"""
