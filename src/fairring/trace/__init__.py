"""Traces of a job: read, brought to one clock, and explained in words. docs/trace.md."""
