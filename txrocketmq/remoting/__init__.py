"""The Twisted shell of the codec: connections, dispatch, servers and clients."""
