"""Other queues as subjects: scripts for a Python of their own, never imported by everfill."""
