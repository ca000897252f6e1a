"""What the tools of other vendors print of their accelerators: amd-smi, rocm-smi, xpu-smi, hl-smi, neuron-monitor, npu-smi."""
