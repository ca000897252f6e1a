"""The rules of alerts as rules for Prometheus, over our `/metrics` or over dcgm-exporter and kube-state-metrics."""
