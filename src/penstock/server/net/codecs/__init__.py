"""Transports other than plain TCP, as codecs without IO: TLS, WebSocket, and one over the other."""
