"""What Everfill is measured against: one Temporal activity a cell, until it breaks.

`workflow` is the design as people write it, `plan` says what is tried, `run` tries it on a real
server, and `report` holds what came out. Nothing here touches Postgres or Redis.
"""
