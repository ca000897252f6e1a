"""The agent: samples the GPUs and the node it runs on, and sends what it reads to a loadfactor server or shows it to Prometheus.

A distribution of its own: the standard library and nvidia-ml-py, nothing of `loadfactor`.
"""
