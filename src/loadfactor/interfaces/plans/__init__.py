"""Pages of plans: each builds a document from a request and what the planner says."""
