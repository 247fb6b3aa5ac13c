"""The engine that fills computed cells.

`machine` holds the transitions, pure; `queue` carries them out in SQL; `dispatch` is the one way to
ask for a recompute; `cell_worker` claims, computes and finalizes; Temporal keeps `setup_workflow` and
`janitor` alive; `progress` counts. Only signal, claim and finalize touch both sides of a cell.
"""
