"""What does a token cost to serve? One replica as equations, a fleet as an event simulation, both on the same step time."""
