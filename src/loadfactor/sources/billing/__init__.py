"""Decoders of bills: FOCUS, AWS, Azure and Google exports → rows of charges under FOCUS's names, amounts exact."""
