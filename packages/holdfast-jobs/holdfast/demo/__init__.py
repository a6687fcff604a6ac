"""The demo: several tenants, two worker processes, one kill, and the acts of the extensions.

app.py      The tenants and their jobs.
story.py    The order of events: a flood, a trickle beside it, a kill, the end, the counts.
acts.py     The acts that installed extensions add, in a process of their own.
state.py    What the views show while the demo runs.
waits.py    How long the jobs of each tenant waited, from the database.
summary.py  The counts at the end, from the database and from the acts.
view.py     Prints lines; stage.py draws a live picture on a terminal.
"""
