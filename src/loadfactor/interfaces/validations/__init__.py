"""Pages of validations: predictions beside measurements, each page a document."""
