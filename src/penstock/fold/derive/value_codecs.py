"""Codecs: convert the bytes of values to objects and back.

A codec has a name that states its format and type. It raises `Undecodable` for bytes in another
format, whatever its library raises. Optional libraries are imported when a codec that needs them is
created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import msgspec

from penstock.fold.errors import FoldError

if TYPE_CHECKING:
    from collections.abc import Callable

VALUE_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of a decompressed value."""
ZSTD_LEVEL = 3

T = TypeVar("T")


class Undecodable(FoldError):
    """The bytes of a value are not what the codec reads."""

    hint = "write the value again, or read it with a codec that takes it"


class Codec(Protocol[T]):
    """Bytes to objects and back."""

    @property
    def name(self) -> str: ...
    def encode(self, value: T) -> bytes: ...
    def decode(self, data: bytes) -> T: ...


class Raw:
    """Unchanged bytes."""

    name = "raw"

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        return data


class _Msgspec(Generic[T]):
    """A msgspec format, validated against a type: a Struct, a dataclass, dict[str, int], ..."""

    form: str

    def __init__(
        self,
        type_: type[T] | Any,
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], T],
    ) -> None:
        self.name = f"{self.form}:{getattr(type_, '__qualname__', type_)}"
        self.encode = encode
        self._decode = decode

    def decode(self, data: bytes) -> T:
        try:
            return self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            raise Undecodable(str(error)) from error


class Json(_Msgspec[T]):
    """JSON."""

    form = "json"

    def __init__(self, type_: type[T] | Any = Any) -> None:
        decoder = msgspec.json.Decoder(type_)
        super().__init__(type_, msgspec.json.Encoder().encode, decoder.decode)


class MessagePack(_Msgspec[T]):
    """MessagePack."""

    form = "msgpack"

    def __init__(self, type_: type[T] | Any = Any) -> None:
        decoder = msgspec.msgpack.Decoder(type_)
        super().__init__(type_, msgspec.msgpack.Encoder().encode, decoder.decode)


class PydanticModel(Protocol):
    """The methods of a pydantic model that the codec uses."""

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> Any: ...
    def model_dump_json(self) -> str: ...


P = TypeVar("P", bound=PydanticModel)


class Pydantic(Generic[P]):
    """JSON as a pydantic model. Needs no import: a caller with a model has pydantic loaded."""

    def __init__(self, model: type[P]) -> None:
        self.name = f"pydantic:{model.__qualname__}"
        self._model = model

    def encode(self, value: P) -> bytes:
        return value.model_dump_json().encode()

    def decode(self, data: bytes) -> P:
        try:
            return cast("P", self._model.model_validate_json(data))
        except ValueError as error:
            # The error text contains the value, so only the error class is reported.
            raise Undecodable(f"not a {self._model.__name__}: {type(error).__name__}") from error


class Zstd(Generic[T]):
    """Zstandard compression around another codec."""

    def __init__(self, inner: Codec[T], *, level: int = ZSTD_LEVEL) -> None:
        import zstandard

        self.name = f"zstd:{inner.name}"
        self._inner = inner
        self._error = zstandard.ZstdError
        self._compress = zstandard.ZstdCompressor(level=level).compress
        self._size = zstandard.frame_content_size
        self._decompressor = zstandard.ZstdDecompressor

    def encode(self, value: T) -> bytes:
        return self._compress(self._inner.encode(value))

    def decode(self, data: bytes) -> T:
        try:
            size = self._size(data)
            if size > VALUE_BYTES_MAX:
                raise Undecodable(f"would grow to {size} bytes, not at most {VALUE_BYTES_MAX}")
            plain = self._decompressor().decompress(data, max_output_size=VALUE_BYTES_MAX)
        except self._error as error:
            raise Undecodable(str(error)) from error
        return self._inner.decode(plain)
