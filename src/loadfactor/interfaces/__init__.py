"""Documents, their renderers, reports, plans, commands. No formula: every number is read from elsewhere."""
