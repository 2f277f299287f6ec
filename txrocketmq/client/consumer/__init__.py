"""Consumers: how messages get from brokers to handlers, and how a group divides its queues."""
