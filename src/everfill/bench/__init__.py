"""Benchmarks: the queue beside what else there is, and the engine under load."""
