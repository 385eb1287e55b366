"""Multi-turn fatal-aware GRPO: advantage, batch, loss, and the trainers that use them."""
