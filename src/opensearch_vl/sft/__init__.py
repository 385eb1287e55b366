"""Agentic supervised fine-tuning: trajectory synthesis with rejection, datasets, export, training."""
