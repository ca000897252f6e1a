"""The hardware kit: measures the GPUs of this machine with PyTorch alone, and compares what it measured with what loadfactor says.

`python -m benchmarks.hardware DIR` measures and leaves JSON in a folder; `python -m benchmarks.hardware.compare DIR` reads it where
loadfactor is installed, on this machine or another. `make hardware OUT=DIR` does both (docs/hardware.md).
"""
