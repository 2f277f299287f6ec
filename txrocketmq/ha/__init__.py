"""Replication: a master that hands its log out, a slave that follows one."""
