"""Event simulation, request by request, of a fleet of replicas that batch continuously; its inner loop is compiled."""
