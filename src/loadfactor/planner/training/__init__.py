"""Training: step time, memory, layout search and cost of a run. Pure equations on numbers or arrays; no serving, no sizing."""
