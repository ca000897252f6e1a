"""The agent: samples the GPUs and the node it runs on, and sends what it reads to a loadfactor server or shows it to Prometheus.

It stands alone: the standard library, nvidia-ml-py and, where pods are requested, grpcio; nothing of `loadfactor`, which depends on
it. Files name each other relatively.
"""

__version__ = "0.1.0"
