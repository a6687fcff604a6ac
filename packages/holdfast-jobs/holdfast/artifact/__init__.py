"""The way of an artifact: a file that a job reads or makes.

    write.py     A row says 'writing'; the bytes follow, hashed and counted; the row says 'stored'.
    read.py      The bytes come back, compared with what was stored while they flow.
    link.py      A signed token stands for one artifact until it expires.
    end.py       What expired, was removed or was never finished: marked first, erased after.

artifact.py says what an artifact is. vault.py says where bytes lie: files.py in a folder, s3.py in
an S3-compatible store. artifacts.py is the face of all this.
"""
