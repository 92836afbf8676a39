"""What people build with leases: each noun in a module of its own, beneath the clients, for both faces."""
