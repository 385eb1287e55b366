"""Command line `osvl`: the only place that wires rooms together."""
