"""The engine that fills computed cells.

`machine` holds the transitions, pure, and `queue` carries them out in SQL. `dispatch` is the one
way to ask for a recompute, `edits` and `columns` are what people change, and `cell_worker` claims,
computes and finalizes. `setup_workflow` and `janitor` run under Temporal; `progress` counts.
"""
