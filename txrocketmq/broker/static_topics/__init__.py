"""Static topics: queues that keep their numbers and offsets while they move from broker to broker."""
