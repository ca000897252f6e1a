"""Digests: what people get sent of each day, week or month, to whom, and that each is sent once."""
