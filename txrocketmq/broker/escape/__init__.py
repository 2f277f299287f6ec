"""What a slave delivers in its lost master's place goes to other brokers of the cluster."""
