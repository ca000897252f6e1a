"""The books of a fleet behind one object: open, add, show, report, check, rebuild."""
