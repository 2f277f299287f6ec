"""Apache RocketMQ, spoken natively by Python and Twisted."""

__version__ = "0.1.0"
