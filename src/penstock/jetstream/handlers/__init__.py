"""What the JetStream API does, one module per noun, and the table of all of it."""

from penstock.jetstream.handlers import (
    account_handlers,
    archive_handlers,
    consumer_handlers,
    message_handlers,
    stream_handlers,
)

ENDPOINTS = {
    **account_handlers.ENDPOINTS,
    **stream_handlers.ENDPOINTS,
    **message_handlers.ENDPOINTS,
    **consumer_handlers.ENDPOINTS,
    **archive_handlers.ENDPOINTS,
}
