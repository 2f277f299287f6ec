"""Transactional messages: half messages, their outcomes, and asking producers for them."""
