"""All JSON bodies of the protocol: `decode_body` and `encode_body`, and what they are made of.

The beans live beside this file by area (``offsets``, ``clients``, ``tables``, ``admin``, ``pop``, ``controller``, ``security``),
those that roles keep in memory in `txrocketmq.model`. Forms of their own: routes (``routes``), registrations
(``registration``), heartbeats with bad groups (``heartbeats``).
"""

from txrocketmq.codec.bodies.wire import decode_body, encode_body

__all__ = ["decode_body", "encode_body"]
