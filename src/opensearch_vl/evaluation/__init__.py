"""Benchmarks, evaluation runs and reports."""
