"""Codecs without IO for transports other than plain TCP: TLS, WebSocket, and WebSocket over TLS."""
