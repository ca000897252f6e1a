"""CloudWatch and Cloud Monitoring: what the clouds keep of GPUs, as series that the decoder of Prometheus takes."""
