"""Trajectories as one self-contained HTML page."""
