"""How is it shown? Command line, pages, reports. No arithmetic here: every number is read from a declaration elsewhere."""
