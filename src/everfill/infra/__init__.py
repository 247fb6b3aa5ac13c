"""Everything that talks to a server or a disk: Postgres, Redis, Temporal, blobs, own servers.

It knows how to connect, load queries, migrate and start servers; it does not know what a cell is.
"""
