"""The txrocketmq command line."""
