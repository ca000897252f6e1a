"""Dashboards for Grafana: `DASHBOARDS` declares them over the gauges of `/metrics`; Grafana's own builders write them."""
