"""Reports on a fleet, a job or a bill: the questions to the books, and the document of the answers. No formula, no rendering."""
