"""The demo: three tenants, two worker processes, one kill, and a look at what the database says.

app.py      The jobs: some slow, one with a flaky upstream, one with a bug.
story.py    What happens, in order: enqueue, work, kill, wait, look.
verdict.py  What became of every accepted job, asked of the database.
view.py     The story as lines; stage.py shows it as a live picture where there is a terminal.
"""
