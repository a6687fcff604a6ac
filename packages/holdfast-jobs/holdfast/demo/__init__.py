"""The demo: one noisy tenant, four quiet ones, two worker processes, one kill, and a look.

app.py      The jobs: small ones by the thousand, others, a flaky upstream, a bug.
story.py    What happens, in order: a flood, a trickle beside it, a kill, the end, a look.
scene.py    How things stand while it happens.
waits.py    How long everybody's jobs waited, asked of the database.
verdict.py  What became of every accepted job, asked of the database.
view.py     The story as lines; stage.py shows it as a live picture where there is a terminal.
"""
