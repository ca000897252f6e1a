"""The agent: samples the GPUs and the node it runs on, and sends what it reads to a loadfactor server or shows it to Prometheus.

It stands alone: the standard library, nvidia-ml-py and, where pods are asked for, grpcio; nothing else of `loadfactor`. So
packaging/agent builds a light distribution of it, `loadfactor-agent`, in which this package is called `loadfactor_agent`; no file
is in both. Files name each other relatively (`from .spool import Spool`), which is right under both names.
"""
