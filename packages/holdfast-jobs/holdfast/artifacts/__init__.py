"""Artifacts: the files that jobs read and store. An extension that is installed with the core.

    extension.py    What the extension declares.
    artifacts.py    Artifacts, the enabled extension: ``hf.artifacts`` and ``job.artifacts``.
    write.py        A row in state 'writing', then the bytes, hashed and counted, then 'stored'.
    read.py         The bytes, compared with their checksum while they are read.
    link.py         A signed token that opens one artifact until it expires.
    cleanup.py      Artifacts that expired, were removed or were never finished.
    operator.py     The verbs of the operator API; commands.py, those of the command line.
    verify.py       The invariants that ``holdfast verify`` checks.

artifact.py describes one artifact. blob_store.py is the interface for the bytes: file_store.py
keeps them in a folder, s3_store.py in an S3-compatible store.
"""
