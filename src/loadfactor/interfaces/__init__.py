"""What people see: documents, their renderers, reports, plans, commands. No formula: every number is read from elsewhere."""
