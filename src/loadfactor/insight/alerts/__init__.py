"""Alerts: conditions over the books, judged step by step, and what becomes of them: pending, firing, resolved."""
