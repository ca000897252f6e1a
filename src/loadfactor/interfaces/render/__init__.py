"""Renderers of a document: terminal, HTML, Markdown, JSON, CSV and pictures. They know nothing of what a page is about."""
