"""What happens, request by request, on a fleet of replicas that batch continuously? An event simulation in a compiled loop."""
