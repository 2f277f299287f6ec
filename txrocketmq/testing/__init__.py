"""Stand-ins for disk and threads, for tests of txrocketmq and of what is built on it."""
