"""The loop: dialect (text to actions), environment, rollout, transcript."""
