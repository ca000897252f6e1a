"""Decoders of profiler traces: Kineto and Chrome JSON, XPlane, Nsight Systems exports and memory timelines → captures."""
