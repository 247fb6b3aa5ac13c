"""What every room stands on: ids, clock, errors, limits and configuration.

Nothing here does I/O beyond reading settings, and nothing here knows what a table is.
"""
