"""JetStream in the server: performs the effects that streams and consumers return."""
