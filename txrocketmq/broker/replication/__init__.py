"""Replication as a feature of a broker: roles, the copies of tables that slaves keep, and what operators ask."""
