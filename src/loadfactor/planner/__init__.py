"""What-if answers by pure equations: frozen inputs, frozen results, no files, clock, network or logging."""
