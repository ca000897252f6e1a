"""Delivery of alerts: transitions kept until every receiver has them, silences, messages, and dispatchers."""
