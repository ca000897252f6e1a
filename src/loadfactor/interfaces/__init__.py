"""The faces of the project: documents, their renderers, reports, plans, commands. No formula: every number is read from elsewhere."""
