"""Measurements of tenure beside what its users would pick otherwise; `python -m bench` runs them, nothing is asserted.

The machine that measures is rarely quiet, so the sides of a comparison run in turn (A B A B ...) in one run, medians
are reported with the CPU time per operation beside the rate, and only ratios within one table mean anything.
docs/performance.md tells how to read them.
"""
