"""Exports: the ledger, its sums, readings and statements as tables of other systems, a UTC day a part."""
