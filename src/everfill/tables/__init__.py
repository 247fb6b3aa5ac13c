"""Namespaces, collections, columns and their DAG, rows and cells; import and export.

A collection is a table. Everything here is about what a person (or agent) sees and edits; how a
computed cell gets its value is autofill's business.
"""
