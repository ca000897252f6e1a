"""How a question about metrics is answered: one aggregate over the ledger, sums divided last, readings. No I/O."""
