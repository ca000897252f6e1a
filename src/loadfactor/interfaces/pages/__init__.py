"""The pages of single commands: what was imported, the check of the books, and lists of what is known."""
