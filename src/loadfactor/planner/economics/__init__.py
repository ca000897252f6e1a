"""Economics of GPUs: owning, renting, committing, spot, and self-hosting against an API. Pure equations."""
