"""The HTTP edge: health, collections, and progress as server-sent events.

It translates; every rule is in the rooms below. It binds loopback unless told otherwise.
"""
