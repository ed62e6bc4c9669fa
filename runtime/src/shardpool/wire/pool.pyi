# Generated from pool.proto by `make generate`.
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Any as _Any, ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNKNOWN: _ClassVar[Phase]
    PHASE_FILLING: _ClassVar[Phase]
    PHASE_READY: _ClassVar[Phase]
    PHASE_DRAINING: _ClassVar[Phase]

class Refusal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_NONE: _ClassVar[Refusal]
    REFUSAL_NOT_HELD: _ClassVar[Refusal]
    REFUSAL_CANCELLED: _ClassVar[Refusal]
    REFUSAL_LENT: _ClassVar[Refusal]
PHASE_UNKNOWN: Phase
PHASE_FILLING: Phase
PHASE_READY: Phase
PHASE_DRAINING: Phase
REFUSAL_NONE: Refusal
REFUSAL_NOT_HELD: Refusal
REFUSAL_CANCELLED: Refusal
REFUSAL_LENT: Refusal

class Party(_message.Message):
    __slots__ = ("protocol", "instance", "mx_source_id", "rank", "world", "layout", "catalog_digest", "endpoint", "identity_json")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    MX_SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    CATALOG_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_JSON_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    instance: str
    mx_source_id: str
    rank: int
    world: int
    layout: str
    catalog_digest: bytes
    endpoint: str
    identity_json: str
    def __init__(self, protocol: _Optional[int] = ..., instance: _Optional[str] = ..., mx_source_id: _Optional[str] = ..., rank: _Optional[int] = ..., world: _Optional[int] = ..., layout: _Optional[str] = ..., catalog_digest: _Optional[bytes] = ..., endpoint: _Optional[str] = ..., identity_json: _Optional[str] = ...) -> None: ...

class StateRequest(_message.Message):
    __slots__ = ("caller",)
    CALLER_FIELD_NUMBER: _ClassVar[int]
    caller: Party
    def __init__(self, caller: _Optional[_Union[Party, _Mapping[str, _Any]]] = ...) -> None: ...

class StateResponse(_message.Message):
    __slots__ = ("source", "piece_count", "piece_size", "shard_size", "outline_size", "transports", "state")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PIECE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PIECE_SIZE_FIELD_NUMBER: _ClassVar[int]
    SHARD_SIZE_FIELD_NUMBER: _ClassVar[int]
    OUTLINE_SIZE_FIELD_NUMBER: _ClassVar[int]
    TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    source: Party
    piece_count: int
    piece_size: int
    shard_size: int
    outline_size: int
    transports: _containers.RepeatedScalarFieldContainer[str]
    state: StateUpdate
    def __init__(self, source: _Optional[_Union[Party, _Mapping[str, _Any]]] = ..., piece_count: _Optional[int] = ..., piece_size: _Optional[int] = ..., shard_size: _Optional[int] = ..., outline_size: _Optional[int] = ..., transports: _Optional[_Iterable[str]] = ..., state: _Optional[_Union[StateUpdate, _Mapping[str, _Any]]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("caller", "instance", "generation")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    caller: Party
    instance: str
    generation: int
    def __init__(self, caller: _Optional[_Union[Party, _Mapping[str, _Any]]] = ..., instance: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class StateUpdate(_message.Message):
    __slots__ = ("generation", "phase", "pieces", "digests", "withdrawn", "claims_changed", "claims", "readers", "max_readers", "egress_bytes_per_second", "reads_seed", "outline_known")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    MAX_READERS_FIELD_NUMBER: _ClassVar[int]
    EGRESS_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    READS_SEED_FIELD_NUMBER: _ClassVar[int]
    OUTLINE_KNOWN_FIELD_NUMBER: _ClassVar[int]
    generation: int
    phase: Phase
    pieces: _containers.RepeatedScalarFieldContainer[int]
    digests: bytes
    withdrawn: _containers.RepeatedScalarFieldContainer[int]
    claims_changed: bool
    claims: _containers.RepeatedScalarFieldContainer[int]
    readers: int
    max_readers: int
    egress_bytes_per_second: int
    reads_seed: bool
    outline_known: bool
    def __init__(self, generation: _Optional[int] = ..., phase: _Optional[_Union[Phase, str]] = ..., pieces: _Optional[_Iterable[int]] = ..., digests: _Optional[bytes] = ..., withdrawn: _Optional[_Iterable[int]] = ..., claims_changed: _Optional[bool] = ..., claims: _Optional[_Iterable[int]] = ..., readers: _Optional[int] = ..., max_readers: _Optional[int] = ..., egress_bytes_per_second: _Optional[int] = ..., reads_seed: _Optional[bool] = ..., outline_known: _Optional[bool] = ...) -> None: ...

class OutlineRequest(_message.Message):
    __slots__ = ("caller", "instance")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    caller: Party
    instance: str
    def __init__(self, caller: _Optional[_Union[Party, _Mapping[str, _Any]]] = ..., instance: _Optional[str] = ...) -> None: ...

class OutlineChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("caller", "instance", "transport")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    caller: Party
    instance: str
    transport: str
    def __init__(self, caller: _Optional[_Union[Party, _Mapping[str, _Any]]] = ..., instance: _Optional[str] = ..., transport: _Optional[str] = ...) -> None: ...

class LeaseResponse(_message.Message):
    __slots__ = ("lease_id", "ttl_ms", "instance", "rate_limit", "nixl")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    RATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    NIXL_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    ttl_ms: int
    instance: str
    rate_limit: int
    nixl: NixlOffer
    def __init__(self, lease_id: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., instance: _Optional[str] = ..., rate_limit: _Optional[int] = ..., nixl: _Optional[_Union[NixlOffer, _Mapping[str, _Any]]] = ...) -> None: ...

class NixlOffer(_message.Message):
    __slots__ = ("agent_name", "metadata", "metadata_digest", "regions")
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    METADATA_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    agent_name: str
    metadata: bytes
    metadata_digest: bytes
    regions: _containers.RepeatedCompositeFieldContainer[NixlRegion]
    def __init__(self, agent_name: _Optional[str] = ..., metadata: _Optional[bytes] = ..., metadata_digest: _Optional[bytes] = ..., regions: _Optional[_Iterable[_Union[NixlRegion, _Mapping[str, _Any]]]] = ...) -> None: ...

class NixlRegion(_message.Message):
    __slots__ = ("start", "length", "address", "device")
    START_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    start: int
    length: int
    address: int
    device: int
    def __init__(self, start: _Optional[int] = ..., length: _Optional[int] = ..., address: _Optional[int] = ..., device: _Optional[int] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("lease_id", "instance")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    instance: str
    def __init__(self, lease_id: _Optional[str] = ..., instance: _Optional[str] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("ttl_ms", "rate_limit")
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    RATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    ttl_ms: int
    rate_limit: int
    def __init__(self, ttl_ms: _Optional[int] = ..., rate_limit: _Optional[int] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("lease_id", "instance")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    instance: str
    def __init__(self, lease_id: _Optional[str] = ..., instance: _Optional[str] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("lease_id", "instance", "piece", "offset", "cancel", "following", "first")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    FOLLOWING_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    instance: str
    piece: int
    offset: int
    cancel: bool
    following: _containers.RepeatedScalarFieldContainer[int]
    first: bool
    def __init__(self, lease_id: _Optional[str] = ..., instance: _Optional[str] = ..., piece: _Optional[int] = ..., offset: _Optional[int] = ..., cancel: _Optional[bool] = ..., following: _Optional[_Iterable[int]] = ..., first: _Optional[bool] = ...) -> None: ...

class ReadChunk(_message.Message):
    __slots__ = ("piece", "offset", "data", "refusal")
    PIECE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    piece: int
    offset: int
    data: bytes
    refusal: Refusal
    def __init__(self, piece: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., refusal: _Optional[_Union[Refusal, str]] = ...) -> None: ...
