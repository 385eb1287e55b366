"""Fixtures shared with the other training tests."""

from training_fixtures import checkpoint as checkpoint
