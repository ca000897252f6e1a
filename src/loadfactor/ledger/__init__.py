"""The accounting of GPU-seconds as Ibis expressions: inventory, capacity, attribution, states. No I/O."""
