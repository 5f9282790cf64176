"""What the JetStream API does, one module per noun, and the table of all of it."""

from penstock.jetstream.handlers import account, archives, consumers, messages, streams

ENDPOINTS = {
    **account.ENDPOINTS,
    **streams.ENDPOINTS,
    **messages.ENDPOINTS,
    **consumers.ENDPOINTS,
    **archives.ENDPOINTS,
}
