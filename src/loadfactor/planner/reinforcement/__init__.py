"""Reinforcement learning: rollouts by the serving model, updates by the training model, and who waits for whom."""
