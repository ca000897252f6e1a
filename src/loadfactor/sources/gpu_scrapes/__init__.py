"""Scrapes of GPU exporters, of whatever form: what was read of each GPU at each time → rows. Knows no format."""
