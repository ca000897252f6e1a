"""First contact: what is found on a machine, the configuration that follows from it, and what configured sources give."""
