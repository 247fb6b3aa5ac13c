"""The command line: reads what a person typed, calls the services, shows the answer.

Data goes to stdout, everything else to stderr. Every command that reads takes `--json`.
"""
