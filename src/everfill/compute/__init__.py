"""What can fill a cell: one protocol, a registry by name, and the kinds that ship with Everfill.

A kind turns requests into results and knows nothing of queues, rows or databases. Third parties add
kinds through the entry-point group `everfill.compute`.
"""
