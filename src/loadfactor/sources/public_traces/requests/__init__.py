"""Decoders and the reader of request traces: time, prompt and output tokens and prefix blocks of every request, in chunks."""
