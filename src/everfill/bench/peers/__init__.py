"""The subjects beside Everfill: scripts for their own Python, without Everfill's code."""
