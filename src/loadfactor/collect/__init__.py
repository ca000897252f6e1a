"""Receives and fetches samples live, on a schedule, and hands them to the store as rows. Only `discovery` knows metrics."""
