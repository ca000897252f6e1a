"""Chargeback: lines of bills, else priced GPU-seconds of the ledger, as statements; and closed months."""
