"""What could be? Pure equations: frozen inputs, frozen results, no files, clock, network or logging."""
