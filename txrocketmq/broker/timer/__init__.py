"""Messages with a delivery time of their own: taken into the wheel, delivered, recalled."""
