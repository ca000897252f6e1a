"""How fast and how full will a training run be, and which layout of it is best? Pure equations on numbers or arrays."""
