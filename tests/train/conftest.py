"""Fixtures shared with the other training tests."""

from training_fixtures import checkpoint as checkpoint
from training_fixtures import moe_checkpoint as moe_checkpoint
