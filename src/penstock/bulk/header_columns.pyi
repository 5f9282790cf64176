class HeaderColumns:
    valid: bytes
    starts: bytes
    names: bytes
    name_offsets: bytes
    value_starts: bytes
    values: bytes
    value_offsets: bytes
    name_count: int
    value_count: int

def header_columns(blocks: bytes, offsets: bytes) -> HeaderColumns: ...
def without_sizes(blocks: bytes, offsets: bytes) -> tuple[bytes, bytes, bytes]: ...
