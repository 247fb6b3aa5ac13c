"""Other systems measured beside Everfill: scripts for a Python that has them installed."""
